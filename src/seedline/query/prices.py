"""What tokens cost, by a table that the user gives."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from seedline.errors import QueryError
from seedline.session.usage import UsageTotals

_MILLION: Final = Decimal(1_000_000)


class ModelName(NamedTuple):
    """A model at a provider, as request headers name it."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


class Price(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a million tokens cost, in the currency of the table. Reasoning is part of the output.

    Tokens read from a cache or written to one cost what input costs where nothing is said of them.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            amount: Decimal | None = getattr(self, name)
            if amount is not None and not (amount.is_finite() and amount >= 0):
                raise ValueError(f"{name} is {amount}, a price is a number of at least 0")


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices by `provider/model`, or by `model` alone for every provider."""

    currency: str = "USD"
    models: dict[str, Price] = {}


def read_prices(text: bytes) -> Prices:
    """Return the price table of a JSON text.

    `{"currency": "USD", "models": {"provider/model": {"input": 0.27, "output": 1.1, "cacheRead": 0.07}}}`.
    Raises `QueryError` (`INVALID_PRICES`).
    """
    try:
        return msgspec.json.decode(text, type=Prices)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise QueryError("INVALID_PRICES", f"the price table cannot be read: {error}") from None


def price_of(prices: Prices, model: ModelName | None, usage: UsageTotals) -> Decimal | None:
    """Return what the tokens of `usage` cost, None where the table does not know the model."""
    if model is None:
        return None
    price = prices.models.get(str(model)) or prices.models.get(model.model)
    if price is None:
        return None
    amounts = (
        (usage.input_tokens, price.input),
        (usage.output_tokens, price.output),
        (usage.cache_read_tokens, price.input if price.cache_read is None else price.cache_read),
        (usage.cache_write_tokens, price.input if price.cache_write is None else price.cache_write),
    )
    return sum((tokens * amount for tokens, amount in amounts), Decimal()) / _MILLION
