"""Request headers: the canonical form and equality."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.errors import SessionPersistenceCorruptionError
from seedline.events.vocabulary import AdapterDefaults, RequestConfig, RequestHeaderBody
from seedline.session.request import RequestFolds, canonical_header, same_header
from tests.unit.session.make import event, request

CONFIG = RequestConfig(provider="p", model="m")


@pytest.mark.parametrize(
    ("body", "canonical"),
    [
        ({"config": CONFIG}, {"config": CONFIG}),
        ({"config": CONFIG, "system": ""}, {"config": CONFIG}),
        ({"config": CONFIG, "tools": []}, {"config": CONFIG}),
        (
            {"config": CONFIG, "system": "s", "tools": "{{tools}}"},
            {"config": CONFIG, "system": "s", "tools": "{{tools}}"},
        ),
        ({"config": CONFIG, "adapter_defaults": AdapterDefaults()}, {"config": CONFIG}),
        (
            {"config": CONFIG, "adapter_defaults": AdapterDefaults(max_tokens=True)},
            {"config": CONFIG, "adapter_defaults": AdapterDefaults(max_tokens=True)},
        ),
    ],
)
def test_what_says_nothing_is_dropped(body: dict[str, Any], canonical: dict[str, Any]) -> None:
    assert canonical_header(RequestHeaderBody(**body)) == RequestHeaderBody(**canonical)


TOOL = {"name": "t", "description": "d", "parameters": {"a": 1, "b": 2}}
TOOL_OTHER_ORDER = {"name": "t", "description": "d", "parameters": {"b": 2, "a": 1}}
BASE = RequestHeaderBody(config=CONFIG, system="s", tools=[TOOL])


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (RequestHeaderBody(config=CONFIG, system="s", tools=[dict(TOOL)]), True),
        (RequestHeaderBody(config=CONFIG, system="t", tools=[TOOL]), False),
        (RequestHeaderBody(config=CONFIG, system="s"), False),
        (RequestHeaderBody(config=CONFIG, system="s", tools=[TOOL, TOOL]), False),
        (RequestHeaderBody(config=CONFIG, system="s", tools=[TOOL_OTHER_ORDER]), False),
        (RequestHeaderBody(config=CONFIG, system="s", tools="{{tools}}"), False),
        (
            RequestHeaderBody(
                config=RequestConfig(provider="p", model="m", stop=("a",)), system="s", tools=[TOOL]
            ),
            False,
        ),
        (
            RequestHeaderBody(
                config=RequestConfig(provider="p", model="m", temperature=0), system="s", tools=[TOOL]
            ),
            False,
        ),
        (
            RequestHeaderBody(
                config=CONFIG, system="s", tools=[TOOL], adapter_defaults=AdapterDefaults(max_tokens=True)
            ),
            False,
        ),
    ],
)
def test_equality_is_field_by_field(other: RequestHeaderBody, same: bool) -> None:
    assert same_header(BASE, other) is same
    assert same_header(other, BASE) is same


def test_stop_lists_compare_in_order() -> None:
    def stopping(*stop: str) -> RequestHeaderBody:
        return RequestHeaderBody(config=RequestConfig(provider="p", model="m", stop=stop))

    assert same_header(stopping("a", "b"), stopping("a", "b"))
    assert not same_header(stopping("a", "b"), stopping("b", "a"))
    assert not same_header(stopping(), RequestHeaderBody(config=CONFIG))


def test_only_four_keys_are_kept() -> None:
    folds = RequestFolds()
    data = request()
    data["header"]["messagePrefix"] = "retired"
    folds.take(event("request/header", 0, data))
    assert folds.header == RequestHeaderBody(config=CONFIG, system="be brief")


def test_a_header_of_another_shape_is_corruption_with_its_seq() -> None:
    folds = RequestFolds()
    folds.take(event("request/header", 4, {}))
    with pytest.raises(SessionPersistenceCorruptionError) as corrupt:
        _ = folds.header
    assert corrupt.value.seq == 4


def test_the_fold_before_a_seq() -> None:
    folds = RequestFolds()
    folds.take(event("request/header", 2, request("two")))
    folds.take(event("request/context", 3, {"provider": "p", "model": "m"}))
    folds.take(event("request/header", 5, request("five")))
    systems = [body.system if (body := folds.before(stop).header) else None for stop in range(7)]
    assert systems == [None, None, None, "two", "two", "two", "five"]
    assert [folds.before(stop).context is None for stop in range(5)] == [True, True, True, True, False]
