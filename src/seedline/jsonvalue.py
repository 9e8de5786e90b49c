"""JSON values and their exact bytes.

`decode` reads strictly, `encode` writes the wire form (ECMAScript numbers, raw UTF-8, lone surrogates
escaped), `canonical` writes the form that digests hash, and `encode_lossless` refuses every value that
would not come back equal, numbers compared as doubles. All of them take any nesting up to `MAX_DEPTH`;
deeper is refused with that limit.

A number is an integer when its value is integral, however it is spelled: `1.0`, `1e3` and `-0` decode as
`int`. Whoever must refuse `-0` looks at the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from json.decoder import scanstring  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]  # typeshed lacks this function
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from seedline.errors import JsonSyntaxError, JsonValueError

MAX_SAFE_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 10_000

T = TypeVar("T")


def is_safe_integer(value: object) -> bool:
    """True for an `int` (never a `bool`) within ±(2**53-1)."""
    return type(value) is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER


def is_count(value: object) -> bool:
    """True for a safe integer that is not negative."""
    return type(value) is int and 0 <= value <= MAX_SAFE_INTEGER


def is_number(value: object) -> bool:
    """True for an `int` or `float`, never a `bool`."""
    return type(value) is int or type(value) is float


# --- reading -------------------------------------------------------------------------------------


def _integer(text: str) -> int:
    if len(text) > 308:
        _finite(text)
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonSyntaxError(f"the number {text[:24]}{'…' if len(text) > 24 else ''} is not finite")
    return number


def _real(text: str) -> int | float:
    number = _finite(text)
    return int(number) if number.is_integer() and abs(number) <= MAX_SAFE_INTEGER else number


def _refuse_constant(text: str) -> Any:
    raise JsonSyntaxError(f"{text} is not a JSON number")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_real, parse_constant=_refuse_constant)


def decode(data: bytes | str) -> Any:
    """Return the value of one JSON text.

    Strict: UTF-8 only, no byte-order mark, no `NaN`, every number finite as a double. Lone surrogate
    escapes are legal. Of duplicate keys the last value wins, at the place of the first.
    Raises `JsonSyntaxError`.
    """
    text = utf8(data) if isinstance(data, bytes) else data
    try:
        return _DECODER.decode(text)
    except RecursionError:
        return _decode_deep(text)
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(f"{error.msg} at character {error.pos}") from None


def utf8(data: bytes) -> str:
    """Decode UTF-8 strictly. Raises `JsonSyntaxError`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonSyntaxError(f"invalid UTF-8 at byte {error.start}") from None


_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class _Open(NamedTuple):
    """A container whose end is not read yet. `key` holds the pending key of an object."""

    value: Any
    key: list[str]


def _decode_deep(text: str) -> Any:
    """`decode` without recursion, for nesting that the standard decoder gives up on."""
    opened: list[_Open] = []
    at = _skip(text, 0)
    while True:
        character = text[at : at + 1]
        if character in ("[", "{"):
            if len(opened) == MAX_DEPTH:
                raise JsonSyntaxError(f"nesting deeper than {MAX_DEPTH} levels")
            value: Any = [] if character == "[" else {}
            at = _skip(text, at + 1)
            if text[at : at + 1] == ("]" if character == "[" else "}"):
                at += 1
            else:
                opened.append(_Open(value, []))
                at = _key(text, at, opened[-1]) if character == "{" else at
                continue
        else:
            value, at = _scalar(text, at)
        at, done = _close(text, at, opened, value)
        if done is not opened:
            return done


def _close(text: str, at: int, opened: list[_Open], value: Any) -> tuple[int, Any]:
    """Put `value` into the innermost open container; return the document when it is complete."""
    while opened:
        container, key = opened[-1]
        if isinstance(container, list):
            cast("list[Any]", container).append(value)
            end = "]"
        else:
            container[key.pop()] = value
            end = "}"
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            return (at if end == "]" else _key(text, at, opened[-1])), opened
        if text[at : at + 1] != end:
            raise JsonSyntaxError(f"Expecting ',' or '{end}' at character {at}")
        at += 1
        value = opened.pop().value
    at = _skip(text, at)
    if at != len(text):
        raise JsonSyntaxError(f"Extra data at character {at}")
    return at, value


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _key(text: str, at: int, container: _Open) -> int:
    if text[at : at + 1] != '"':
        raise JsonSyntaxError(f"Expecting a property name at character {at}")
    key, at = _string(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise JsonSyntaxError(f"Expecting ':' at character {at}")
    container.key.append(key)
    return _skip(text, at + 1)


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        return cast("tuple[str, int]", scanstring(text, at + 1, True))
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(f"{error.msg} at character {error.pos}") from None


def _scalar(text: str, at: int) -> tuple[Any, int]:
    character = text[at : at + 1]
    if character == '"':
        return _string(text, at)
    word, meaning = _WORDS.get(character, ("", None))
    if word and text.startswith(word, at):
        return meaning, at + len(word)
    match = _NUMBER.match(text, at)
    if match is None:
        raise JsonSyntaxError(f"Expecting a value at character {at}")
    number = match.group()
    return (_real(number) if match.group(1) or match.group(2) else _integer(number)), match.end()


def decode_as(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode into the type of `decoder`.

    What msgspec cannot read but the format allows (lone surrogates, `1.0` for an integer, deep nesting)
    goes through `decode`. Raises `JsonSyntaxError`, or `msgspec.ValidationError` for a wrong shape.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return convert(decode(data), cast("type[T]", decoder.type), decoder.dec_hook)


def convert(value: Any, kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Return a JSON value as `kind`, lone surrogates anywhere in it.

    Raises `msgspec.ValidationError` for a wrong shape, `JsonSyntaxError` for nesting too deep for `kind`.
    """
    try:
        try:
            return msgspec.convert(value, kind, dec_hook=dec_hook)
        except UnicodeEncodeError:
            value = _with_legible_keys(value, msgspec.inspect.type_info(kind))
            return msgspec.convert(value, kind, dec_hook=dec_hook)
    except UnicodeEncodeError:
        raise msgspec.ValidationError("a lone surrogate where no text is expected") from None
    except RecursionError:
        raise JsonSyntaxError(f"nesting too deep for {kind!r}") from None


def _with_legible_keys(value: Any, kind: msgspec.inspect.Type) -> Any:
    """Return `value` without lone surrogates in keys that msgspec would look up among the fields of a class.

    A field name has none, so such a key stays as unknown as it is.
    """
    if isinstance(kind, msgspec.inspect.UnionType):
        kinds = [member for member in kind.types if isinstance(member, msgspec.inspect.StructType)]
        return _with_legible_keys(value, kinds[0]) if len(kinds) == 1 else value
    if isinstance(kind, msgspec.inspect.VarTupleType | msgspec.inspect.ListType) and type(value) is list:
        return [_with_legible_keys(member, kind.item_type) for member in cast("list[Any]", value)]
    if isinstance(kind, msgspec.inspect.StructType) and type(value) is dict:
        kinds_of = {field.encode_name: field.type for field in kind.fields}
        return {
            _legible(name): _with_legible_keys(member, kinds_of.get(name, msgspec.inspect.AnyType()))
            for name, member in cast("dict[str, Any]", value).items()
        }
    return value


def _legible(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- writing -------------------------------------------------------------------------------------


def number_text(number: float) -> str:
    """Return `number` as ECMAScript prints the double: `5`, `1e-7`, `10000000000000000`, `1e+21`.

    Raises `JsonValueError` for a number that is not finite as a double.
    """
    if type(number) is int and -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER:
        return str(number)
    number = _double(number)
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, _, power = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(power or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def _double(number: float) -> float:
    try:
        double = float(number)
    except OverflowError:
        raise JsonValueError("an integer beyond the range of a double") from None
    if not math.isfinite(double):
        raise JsonValueError(f"{double!r} is not finite")
    return double


def _place_point(digits: str, point: int) -> str:
    """Write `0.digits × 10**point` by the rule of ECMAScript's Number::toString."""
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    exponent = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return f"{digits[0]}{'.' + digits[1:] if count > 1 else ''}{exponent}"


def join_surrogates(text: str) -> str:
    """Return `text` with each high and low surrogate that meet joined into their character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def string_text(text: str) -> str:
    """Return the JSON literal of `text` as ECMAScript writes it; lone surrogates are still raw."""
    return encode_basestring(join_surrogates(text))


def _by_code_unit(item: tuple[str, Any]) -> bytes:
    return item[0].encode("utf-16-be", "surrogatepass")


def _atom(value: object) -> str | None:
    """Return the text of a value without parts, None for a container."""
    if type(value) is str:
        return string_text(value)
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int or type(value) is float:
        return number_text(value)
    if value is None:
        return "null"
    if _is_container(value):
        return None
    raise JsonValueError(f"{type(value).__qualname__} has no JSON form")


def _is_container(value: object) -> bool:
    return type(value) is list or type(value) is dict


def _check_keys(container: Any, path: Sequence[str] = ()) -> None:
    for name in container:
        if type(name) is not str:
            raise JsonValueError(f"a key of type {type(name).__qualname__} is not a str", _pointer(path))


def _pieces(value: Any, sort: bool) -> Iterator[str]:
    """Yield the text of `value` piece by piece, without recursion."""
    text = _atom(value)
    if text is not None:
        yield text
        return
    stack: list[tuple[Iterator[Any], str]] = []

    def enter(container: Any) -> str:
        if len(stack) == MAX_DEPTH:
            raise JsonValueError(f"nesting deeper than {MAX_DEPTH} levels")
        if type(container) is list:
            stack.append((iter(cast("list[Any]", container)), "]"))
            return "["
        _check_keys(container)
        members = cast("dict[str, Any]", container).items()
        if len({join_surrogates(name) for name, _ in members}) < len(members):
            raise JsonValueError("two keys are the same text once halves of a surrogate pair meet")
        stack.append((iter(sorted(members, key=_by_code_unit) if sort else members), "}"))
        return "{"

    yield enter(value)
    first = True
    while stack:
        members, end = stack[-1]
        for member in members:
            if not first:
                yield ","
            first = False
            if end == "}":
                yield string_text(member[0]) + ":"
                member = member[1]
            text = _atom(member)
            if text is None:
                yield enter(member)
                first = True
                break
            yield text
        else:
            yield end
            stack.pop()
            first = False


def _wire(value: Any, sort: bool) -> bytes:
    # Numbers need ECMAScript's form and lone surrogates an escape, which no encoder offers together.
    return "".join(_pieces(value, sort)).encode("utf-8", "backslashreplace")


def encode(value: Any) -> bytes:
    """Return the wire form of a JSON value: compact, key order kept. Raises `JsonValueError`."""
    return _wire(value, sort=False)


def canonical(value: Any) -> bytes:
    """Return the form that digests hash: keys by UTF-16 code unit, numbers as doubles, no blanks.

    Raises `JsonValueError`.
    """
    return _wire(value, sort=True)


_ALIKE = bytes.maketrans(b"123456789\xf1\xf2\xf3\xf4\xefDEFf", b"000000000\xf0\xf0\xf0\xf0\xeedeee")


def _is_usual(text: bytes) -> bool:
    """True when msgspec writes the numbers and the key order of `text` in the canonical form.

    It keeps an integer beyond 2**53, which has 16 digits at least, and it sorts by code point, which is
    another order only where a character beyond U+FFFF meets one from U+E000 to U+FFFF.
    """
    same = text.translate(_ALIKE)
    if b"0" * 16 in same:
        return False
    return not ((b"\xf0" in same or b"\\ud" in same) and (b"\xee" in same or b"\\ue" in same))


def _fraction(text: str) -> msgspec.Raw:
    return msgspec.Raw(number_text(_finite(text)).encode())


_CANONICAL_DECODER = msgspec.json.Decoder(float_hook=_fraction)
_CANONICAL_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_text(data: bytes) -> bytes:
    """Return `canonical(decode(data))`, fast for ordinary texts. Raises `JsonSyntaxError`."""
    if _is_usual(data):
        try:
            return _CANONICAL_ENCODER.encode(_CANONICAL_DECODER.decode(data))
        except (msgspec.DecodeError, RecursionError):
            pass
    return canonical(decode(data))


def _pointer(path: Sequence[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _leaf_problem(value: object) -> str | None:
    """Say why a value that is not a container is not lossless, None when it is."""
    if type(value) is str or type(value) is bool or value is None:
        return None
    if type(value) is int:
        return None if is_safe_integer(value) else "an integer is outside ±(2**53-1)"
    if type(value) is float:
        if not math.isfinite(value):
            return f"{value!r} is not finite"
        return "minus zero would turn into 0" if value == 0 and math.copysign(1, value) < 0 else None
    return f"{type(value).__module__}.{type(value).__qualname__} is not a JSON type"


def _check_lossless(value: object) -> bool:
    """Raise `JsonValueError` unless `value` is lossless; say whether it holds a float."""
    if not _is_container(value):
        _check_leaf(value, [])
        return type(value) is float
    has_float = False
    path: list[str] = []
    ancestors = {id(value)}
    stack = [(value, _members(value, path))]
    while stack:
        container, members = stack[-1]
        for name, member in members:
            if _is_container(member):
                path.append(str(name))
                if id(member) in ancestors:
                    raise JsonValueError("a container holds itself", _pointer(path))
                if len(stack) == MAX_DEPTH:
                    raise JsonValueError(f"nesting deeper than {MAX_DEPTH} levels", _pointer(path[:8]) + "/…")
                ancestors.add(id(member))
                stack.append((member, _members(member, path)))
                break
            if type(member) is not str:
                has_float = has_float or type(member) is float
                _check_leaf(member, path, str(name))
        else:
            ancestors.discard(id(container))
            stack.pop()
            del path[-1:]
    return has_float


def _check_leaf(value: object, path: list[str], *name: str) -> None:
    problem = _leaf_problem(value)
    if problem:
        raise JsonValueError(problem, _pointer([*path, *name]))


def _members(container: object, path: list[str]) -> Iterator[tuple[object, object]]:
    """Return the members of a container as they are at this moment, its keys checked."""
    if type(container) is not dict:
        return iter(tuple(enumerate(cast("list[object]", container))))
    _check_keys(container, path)
    return iter(tuple(cast("dict[object, object]", container).items()))


def encode_lossless(value: Any) -> bytes:
    """Return the wire form of a value that JSON keeps whole. This is the guard on everything appended.

    Takes exactly None, bool, str (any content), int within ±(2**53-1), finite float but minus zero, list,
    and dict with str keys; no subclasses, no cycles. Each member is read once. Raises `JsonValueError`.
    """
    if not _check_lossless(value):
        try:
            return msgspec.json.encode(value)
        except (UnicodeEncodeError, RecursionError):
            pass
    return encode(value)
