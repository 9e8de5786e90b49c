"""JSON values: strict reading, the wire form, the canonical form, the lossless guard, and their limits."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from seedline.errors import JsonSyntaxError, JsonValueError
from seedline.jsonvalue import (
    MAX_DEPTH,
    MAX_SAFE_INTEGER,
    canonical,
    canonical_text,
    decode,
    decode_as,
    encode,
    encode_lossless,
    is_count,
    is_number,
    is_safe_integer,
    join_surrogates,
    number_text,
    string_text,
    utf8,
)

HIGH, LOW = "\ud83d", "\ude00"
DEEP = 5000


def nested(depth: int, opening: str = "[", closing: str = "]", core: str = "1") -> str:
    return opening * depth + core + closing * depth


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "safe", "count", "number"),
    [
        (0, True, True, True),
        (-1, True, False, True),
        (2**53 - 1, True, True, True),
        (2**53, False, False, True),
        (-(2**53) + 1, True, False, True),
        (-(2**53), False, False, True),
        (10**400, False, False, True),
        (1.0, False, False, True),
        (True, False, False, False),
        (False, False, False, False),
        ("1", False, False, False),
        (None, False, False, False),
        (decimal.Decimal(1), False, False, False),
    ],
)
def test_kinds_of_numbers(value: object, safe: bool, count: bool, number: bool) -> None:
    assert (is_safe_integer(value), is_count(value), is_number(value)) == (safe, count, number)


# Number::toString of ECMA-262: its five branches, and the borders between them.
ECMASCRIPT = [
    (0, "0"),
    (-0.0, "0"),
    (5.0, "5"),
    (-5.0, "-5"),
    (0.1, "0.1"),
    (0.1 + 0.2, "0.30000000000000004"),
    (123.456, "123.456"),
    (100.0, "100"),
    (1e16, "10000000000000000"),
    (1e20, "100000000000000000000"),
    (999999999999999900000.0, "999999999999999900000"),
    (1e21, "1e+21"),
    (-1e21, "-1e+21"),
    (1.5e300, "1.5e+300"),
    (1e-6, "0.000001"),
    (1.5e-6, "0.0000015"),
    (9.99e-7, "9.99e-7"),
    (1e-7, "1e-7"),
    (-2.5e-7, "-2.5e-7"),
    (5e-324, "5e-324"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    (2.2250738585072014e-308, "2.2250738585072014e-308"),
    (2**53 - 1, "9007199254740991"),
    (2**53, "9007199254740992"),
    (2**53 + 1, "9007199254740992"),
    (2**64, "18446744073709552000"),
    (-(2**63), "-9223372036854776000"),
    (123456789012345678901, "123456789012345680000"),
    (10**21, "1e+21"),
    (12345678901234567890123, "1.2345678901234568e+22"),
]


@pytest.mark.parametrize(("number", "text"), ECMASCRIPT)
def test_numbers_are_written_as_ecmascript_prints_the_double(number: float, text: str) -> None:
    assert number_text(number) == text
    assert encode([number]) == f"[{text}]".encode()


@pytest.mark.parametrize(
    "number",
    [float("nan"), float("inf"), -float("inf"), 10**400, -(10**5000)],
    ids=["nan", "inf", "-inf", "400 digits", "5000 digits"],
)
def test_a_number_without_a_finite_double_is_refused(number: float) -> None:
    for write in (number_text, encode, canonical, encode_lossless):
        with pytest.raises(JsonValueError):
            write(number)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.0", 1),
        ("1e3", 1000),
        ("1E+3", 1000),
        ("-0", 0),
        ("-0.0", 0),
        ("-0e5", 0),
        ("1e-400", 0),
        ("9007199254740991.0", 2**53 - 1),
        ("9007199254740993", 2**53 + 1),
        ("18446744073709551616", 2**64),
    ],
)
def test_an_integral_number_is_an_int_however_it_is_spelled(text: str, value: int) -> None:
    found = decode(text)
    assert (type(found), found) == (int, value)
    assert encode(decode(nested(1500, core=text))) == encode(decode(nested(1500, core=str(value))))


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("1e300", 1e300), ("9007199254740992.0", 2.0**53)])
def test_other_numbers_are_floats(text: str, value: float) -> None:
    found = decode(text)
    assert (type(found), found) == (float, value)


# --- reading -------------------------------------------------------------------------------------

REFUSED = {
    "nothing": "",
    "blanks": " \t\r\n",
    "two values": "1 2",
    "trailing comma in an array": "[1,]",
    "trailing comma in an object": '{"a":1,}',
    "comma alone": "[,]",
    "no comma": "[1 2]",
    "no colon": '{"a" 1}',
    "colon in an array": "[1:2]",
    "bare key": "{a:1}",
    "number as key": "{1:1}",
    "single quotes": "['a']",
    "open array": "[1",
    "open object": '{"a":1',
    "key without value": '{"a"}',
    "wrong end": "[1}",
    "one end too many": "[1]]",
    "leading zero": "[01]",
    "minus and leading zero": "[-01]",
    "plus": "[+1]",
    "no digit before the point": "[.5]",
    "no digit after the point": "[1.]",
    "no digit in the exponent": "[1e]",
    "minus alone": "[-]",
    "hexadecimal": "[0x10]",
    "NaN": "[NaN]",
    "Infinity": "[Infinity]",
    "minus Infinity": "[-Infinity]",
    "capital literal": "[True]",
    "half a literal": "[nul]",
    "undefined": "[undefined]",
    "an exponent past the doubles": "[1e999]",
    "a minus exponent past the doubles": "[-1E400]",
    "400 digits": f"[{'9' * 400}]",
    "5000 digits": f"[{'1' * 5000}]",
    "250 digits and an exponent": f"[{'1' * 250}e99]",
    "comment": "[1] // one",
    "byte-order mark": "\ufeff1",
    "vertical tab as blank": "\v1",
    "no-break space as blank": "\xa01",
    "NUL after the value": "1\0",
    "open string": '"a',
    "string open behind a backslash": '"a\\"',
    "raw tab in a string": '"\t"',
    "raw line end in a string": '"\n"',
    "raw NUL in a string": '"\0"',
    "raw U+001F in a string": '"\x1f"',
    "unknown escape": '"\\x41"',
    "octal escape": '"\\041"',
    "short unicode escape": '"\\u12"',
    "unicode escape that is no hexadecimal": '"\\u12g4"',
    "unicode escape with a blank": '"\\u 123"',
    "unicode escape with a sign": '"\\u+123"',
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_json_is_refused(text: str) -> None:
    within = text if text.strip() else f"1,{text}"
    for data in (text, text.encode(), nested(1200, core=within), nested(1200, '{"k":[', "]}", core=within)):
        with pytest.raises(JsonSyntaxError):
            decode(data)
    with pytest.raises(JsonSyntaxError):
        canonical_text(text.encode())


@pytest.mark.parametrize(
    "data",
    [
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xe2\x82"',
        b'"\xed\xa0\xbd"',
        b'"\xed\xa0\xbd\xed\xb8\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xf8\x88\x80\x80\x80"',
        "[1]".encode("utf-16"),
        "[1]".encode("utf-32-le"),
        b"\xef\xbb\xbf[1]",
    ],
    ids=repr,
)
def test_bytes_that_are_not_utf8_are_refused(data: bytes) -> None:
    with pytest.raises(JsonSyntaxError):
        decode(data)
    with pytest.raises(JsonSyntaxError):
        canonical_text(data)


def test_the_place_of_bad_utf8_is_named() -> None:
    with pytest.raises(JsonSyntaxError, match="byte 3"):
        utf8(b'"ab\xff"')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' \t\r\n[ 1 , { "a" : null } ] \n', [1, {"a": None}]),
        ('"\\u0041\\/\\b\\f\\n\\r\\t\\"\\\\"', 'A/\b\f\n\r\t"\\'),
        ('"\x7f\u2028\u2029\x85\u3000"', "\x7f\u2028\u2029\x85\u3000"),
        ('"\\u0000"', "\0"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"\\uD83D\\uDE00"', "\U0001f600"),
        ('"\\ud83d"', HIGH),
        ('"\\ude00\\ud83d"', LOW + HIGH),
        ('"\\ud83d\\ud83d\\ude00"', HIGH + "\U0001f600"),
        ('{"\\ud83d":1}', {HIGH: 1}),
        ('{"__proto__":{"a":1}}', {"__proto__": {"a": 1}}),
        ('{"":0}', {"": 0}),
        ("true", True),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_what_is_json_is_read(text: str, value: Any) -> None:
    assert decode(text) == value
    assert decode(text.encode()) == value


def test_of_duplicate_keys_the_last_value_stands_at_the_first_place() -> None:
    for text in ('{"a":1,"b":2,"a":3}', '{"a":1,"b":2,"\\u0061":3}'):
        assert list(decode(text).items()) == [("a", 3), ("b", 2)]
    deep = decode('{"a":1,"b":2,"a":' + nested(1500) + "}")
    assert list(deep) == ["a", "b"]
    assert type(deep["a"]) is list


# --- nesting -------------------------------------------------------------------------------------

DEEP_TEXTS = {
    "arrays": nested(DEEP),
    "empty arrays": nested(DEEP, core=""),
    "objects": nested(DEEP, '{"a":', "}"),
    "both": nested(DEEP // 2, '[{"k":', "}]", core='[1,"x",null,true,0.5]'),
    "members before and after": nested(DEEP // 2, '[1,{"a":"b","k":', ',"z":[]},[]]'),
    "lone surrogates": nested(DEEP, '{"\\ud83d":', "}", core='"\\ude00"'),
}


@pytest.mark.parametrize("text", DEEP_TEXTS.values(), ids=DEEP_TEXTS.keys())
def test_deep_values_are_read_and_written(text: str) -> None:
    value = decode(text)
    assert encode(value).decode() == text
    assert encode_lossless(value).decode() == text
    assert canonical(value).decode() == text
    assert canonical_text(text.encode()).decode() == text


def test_deep_values_come_back_with_blanks_taken_out() -> None:
    spaced = nested(DEEP, ' { "a" : ', " } ", core=" [ 1 , 2 ] ")
    assert encode(decode(spaced)).decode() == nested(DEEP, '{"a":', "}", core="[1,2]")


def test_the_limit_of_nesting_is_taken_and_one_more_is_refused() -> None:
    limit = decode(nested(MAX_DEPTH, core=""))
    assert encode_lossless(limit) == encode(limit) == canonical(limit) == nested(MAX_DEPTH, core="").encode()
    over = [limit]
    for write in (encode, canonical, encode_lossless):
        with pytest.raises(JsonValueError, match=f"deeper than {MAX_DEPTH} levels"):
            write(over)
    for read in (decode, canonical_text):
        with pytest.raises(JsonSyntaxError, match=f"deeper than {MAX_DEPTH} levels"):
            read(nested(MAX_DEPTH + 1, core="").encode())
    with pytest.raises(JsonSyntaxError, match=f"deeper than {MAX_DEPTH} levels"):
        decode("[" * 1_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3000,
        "[" * 3000 + "1",
        "[" * 3000 + "]" * 2999,
        "[" * 3000 + "]" * 3001,
        "[" * 3000 + "}" + "]" * 2999,
        '{"a":' * 3000,
        '{"a":' * 3000 + "1" + "}" * 2999,
        '{"a":' * 3000 + "1" + "}" * 3000 + ",",
        '{"a"' * 3000,
        '[{"a":1},' * 3000,
        "[1," * 3000 + "]" * 3000,
    ],
    ids=lambda text: f"{text[:6]}...{text[-3:]}",
)
def test_deep_damage_is_refused(text: str) -> None:
    with pytest.raises(JsonSyntaxError, match="character"):
        decode(text)


def test_a_caller_near_the_recursion_limit_is_served() -> None:
    def descend(frames: int) -> Any:
        return descend(frames - 1) if frames else act()

    def act() -> bytes:
        return canonical_text(encode_lossless(decode(nested(200))))

    frame, used = sys._getframe(), 0
    while frame := frame.f_back:
        used += 1
    assert descend(sys.getrecursionlimit() - used - 60) == nested(200).encode()


# --- the wire form -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("a/b", '"a/b"'),
        ('"\\', '"\\"\\\\"'),
        ("\b\f\n\r\t", '"\\b\\f\\n\\r\\t"'),
        ("\0\x01\x0b\x1b\x1f", '"\\u0000\\u0001\\u000b\\u001b\\u001f"'),
        ("\x7f\x80\x85\xa0\u2028\u2029\ufeff\uffff", '"\x7f\x80\x85\xa0\u2028\u2029\ufeff\uffff"'),
        ("é漢\U0001f600", '"é漢\U0001f600"'),
        (HIGH, '"\\ud83d"'),
        (LOW, '"\\ude00"'),
        (HIGH + LOW, '"\U0001f600"'),
        (HIGH + HIGH + LOW + LOW, '"\\ud83d\U0001f600\\ude00"'),
        (LOW + HIGH, '"\\ude00\\ud83d"'),
        ("\udbff\udfff", '"\U0010ffff"'),
        ("\ud800", '"\\ud800"'),
        ("\udfff", '"\\udfff"'),
    ],
)
def test_strings_are_written_as_ecmascript_writes_them(text: str, literal: str) -> None:
    data = literal.encode()
    assert encode(text) == encode_lossless(text) == canonical(text) == data
    assert encode({text: 0}) == encode_lossless({text: 0}) == b"{" + data + b":0}"
    assert canonical_text(data) == data
    assert encode(decode(data)) == data
    assert string_text(text).encode("utf-8", "backslashreplace") == data


def test_halves_are_joined() -> None:
    assert join_surrogates(f"a{HIGH}{LOW}b{HIGH}") == f"a\U0001f600b{HIGH}"
    assert join_surrogates("plain") == "plain"


def test_keys_that_become_one_are_refused() -> None:
    for write in (encode, canonical, encode_lossless):
        with pytest.raises(JsonValueError, match="two keys"):
            write({HIGH + LOW: 1, "\U0001f600": 2})
        assert write({HIGH: 1, LOW: 2}) == b'{"\\ud83d":1,"\\ude00":2}'


def test_containers_are_compact_and_keep_their_order() -> None:
    value = {"b": [1, 2.5, None, True, False], "a": {"2": "x", "1": []}, "": {}}
    text = b'{"b":[1,2.5,null,true,false],"a":{"2":"x","1":[]},"":{}}'
    assert encode(value) == encode_lossless(value) == text


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, b"x", object(), {1: 2}, {None: 1}, [{True: 0}], decimal.Decimal(1), Ellipsis],
    ids=lambda value: type(value).__name__,
)
def test_encode_refuses_what_is_no_json_value(value: Any) -> None:
    for write in (encode, canonical):
        with pytest.raises(JsonValueError):
            write(value)


def test_encode_refuses_a_container_that_holds_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    knot: dict[str, Any] = {"a": [1]}
    knot["a"].append(knot)
    for value in (loop, knot):
        for write in (encode, canonical):
            with pytest.raises(JsonValueError, match="nesting deeper"):
                write(value)


# --- the canonical form --------------------------------------------------------------------------

# By UTF-16 code unit U+1F600 (d83d de00) sorts before U+E000 and U+FFFF, by code point behind them.
KEYS = ["", "A", "a", "aa", "\x7f", "é", "漢", HIGH, "\U0001f600", "\U0010ffff", "\ue000", "\uffff"]


def test_keys_sort_by_utf16_code_unit() -> None:
    units = [key.encode("utf-16-be", "surrogatepass") for key in KEYS]
    assert units == sorted(units)
    mixed = {key: place for place, key in reversed(list(enumerate(KEYS)))}
    assert list(decode(canonical(mixed))) == KEYS
    assert list(decode(canonical_text(encode(mixed)))) == KEYS


@pytest.mark.parametrize(
    "text",
    [
        '{"\uffff":1,"\U0001f600":2}',
        '{"\\uffff":1,"\\ud83d\\ude00":2}',
        '{"\\uFFFF":1,"\U0001f600":2}',
        '{"\uffff":1,"\\uD83D\\uDE00":2}',
        '{"\\uE000":1,"\\uD800\\uDC00":2}',
        '{"x\ufb00":1,"x\U0002f800":2}',
        '{"a":[{"\ue000":1,"\U000e0000":2}]}',
    ],
)
def test_the_quick_way_sorts_by_code_unit_too(text: str) -> None:
    data = text.encode()
    assert canonical_text(data) == canonical(decode(data))
    assert canonical_text(data).index(b":2") < canonical_text(data).index(b":1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"b":1.0,"a":[3,4e21,-0,1E2]}', '{"a":[3,4e+21,0,100],"b":1}'),
        ("[9007199254740993,-9007199254740993]", "[9007199254740992,-9007199254740992]"),
        ("[18446744073709551616,1234567890123456]", "[18446744073709552000,1234567890123456]"),
        ("[0.1,1.50,-0.0,1e-7,0.000001,1e-400]", "[0.1,1.5,0,1e-7,0.000001,0]"),
        ('{"a":1,"a":{"b":2}}', '{"a":{"b":2}}'),
        ('"\\u0041\\/\\ud83d\\ude00\\ud83d"', '"A/\U0001f600\\ud83d"'),
        (' { "a" : [ ] } ', '{"a":[]}'),
        ('"id 550e8400-e29b-41d4-a716-446655440000 at 2024-01-02 v1.0"', None),
        ('"１，２。\U0001f600"', None),
    ],
)
def test_the_canonical_form(text: str, expected: str | None) -> None:
    data = text.encode()
    assert canonical_text(data) == canonical(decode(data)) == (expected or text).encode()


# --- the lossless guard --------------------------------------------------------------------------


class Text(str):
    pass


class Whole(int):
    pass


class Row(list[Any]):
    pass


class Table(dict[str, Any]):
    pass


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: int = 1


class Struct(msgspec.Struct):
    x: int = 1


def generator() -> Any:
    yield 1


NOT_LOSSLESS: dict[str, Any] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "minus Infinity": -float("inf"),
    "minus zero": -0.0,
    "2**53": 2**53,
    "-2**53": -(2**53),
    "an int of 6000 digits": 10**6000,
    "tuple": (1,),
    "named tuple": collections.namedtuple("N", "a")(1),
    "set": {1},
    "frozenset": frozenset([1]),
    "bytes": b"x",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "range": range(2),
    "complex": 1j,
    "Decimal": decimal.Decimal("1.5"),
    "datetime": datetime.datetime(2024, 1, 2),
    "str subclass": Text("x"),
    "int subclass": Whole(1),
    "list subclass": Row([1]),
    "dict subclass": Table(a=1),
    "OrderedDict": collections.OrderedDict(a=1),
    "defaultdict": collections.defaultdict(int, a=1),
    "deque": collections.deque([1]),
    "enum": Colour.RED,
    "int enum": Level.LOW,
    "str enum": Word.YES,
    "dataclass": Point(),
    "struct": Struct(),
    "raw JSON": msgspec.Raw(b"1"),
    "a missing value": msgspec.UNSET,
    "ellipsis": ...,
    "object": object(),
    "class": int,
    "function": generator,
    "generator": generator(),
    "int key": {1: 1},
    "bool key": {True: 1},
    "None key": {None: 1},
    "tuple key": {("a",): 1},
    "str subclass key": {Text("a"): 1},
    "str enum key": {Word.YES: 1},
    "huge int key": {10**6000: 1},
}


@pytest.mark.parametrize("value", NOT_LOSSLESS.values(), ids=NOT_LOSSLESS.keys())
def test_what_json_would_change_is_refused(value: Any) -> None:
    for holder in (value, [value], {"k": value}, {"a": [1, {"b": value}]}):
        with pytest.raises(JsonValueError):
            encode_lossless(holder)


LOSSLESS: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "empty text": "",
    "NUL": "a\0b",
    "line separator": "\u2028",
    "lone high": HIGH,
    "lone low": LOW,
    "the largest safe int": MAX_SAFE_INTEGER,
    "the smallest safe int": -MAX_SAFE_INTEGER,
    "float": 0.1,
    "a float of a large whole": 1e300,
    "tiny": 5e-324,
    "list": [],
    "dict": {},
    "__proto__": {"__proto__": [1]},
    "toJSON": {"toJSON": "x", "__json__": 1},
    "mixed": {"a": [1, "b", {"c": [None, {}]}], "b": -1.5},
}


@pytest.mark.parametrize("value", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_what_json_keeps_is_accepted_and_comes_back(value: Any) -> None:
    for holder in (value, [value], {"k": value}, {"a": [1, {"b": value}]}):
        assert decode(encode_lossless(holder)) == holder


def test_the_same_list_twice_is_two_copies() -> None:
    shared: list[Any] = [1]
    assert encode_lossless({"a": shared, "b": [shared, shared]}) == b'{"a":[1],"b":[[1],[1]]}'


def cycle_of_lists() -> Any:
    a: list[Any] = [[]]
    a[0].append(a)
    return a


def cycle_through_a_dict() -> Any:
    a: dict[str, Any] = {"x": [{}]}
    a["x"][0]["y"] = a
    return a


def cycle_below_the_root() -> Any:
    a: list[Any] = []
    a.append(a)
    return {"r": [1, a]}


@pytest.mark.parametrize(
    ("build", "where"),
    [(cycle_of_lists, "/0/0"), (cycle_through_a_dict, "/x/0/y"), (cycle_below_the_root, "/r/1/0")],
)
def test_a_container_that_holds_itself_is_refused(build: Callable[[], Any], where: str) -> None:
    with pytest.raises(JsonValueError, match="holds itself") as refused:
        encode_lossless(build())
    assert refused.value.where == where


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (float("nan"), ""),
        ([0, 1.5, float("inf")], "/2"),
        ([[[]], {"a": [{}, {"b": {1}}]}], "/1/a/1/b"),
        ({"a/b": {"c~d": -0.0}}, "/a~1b/c~0d"),
        ({"a": [[1], {2: 3}]}, "/a/1"),
        ([{"done": [1]}, 2**53], "/1"),
    ],
)
def test_the_refusal_points_into_the_value(value: Any, where: str) -> None:
    with pytest.raises(JsonValueError) as refused:
        encode_lossless(value)
    assert refused.value.where == where
    assert (where or "the root") in str(refused.value)


# --- typed reading -------------------------------------------------------------------------------


class Pair(msgspec.Struct):
    n: int
    rest: Any = None


PAIR = msgspec.json.Decoder(Pair)


@pytest.mark.parametrize("spelling", ["3", "3.0", "3e0", "0.3e1", "30E-1"])
@pytest.mark.parametrize("rest", ["null", '"\\ud83d"', nested(1500)], ids=["usual", "surrogate", "deep"])
def test_typed_reading_takes_every_spelling(spelling: str, rest: str) -> None:
    pair = decode_as(f'{{"n":{spelling},"rest":{rest}}}'.encode(), PAIR)
    assert (type(pair.n), pair.n) == (int, 3)
    assert encode(pair.rest) == rest.encode()


@pytest.mark.parametrize("spelling", ["-0", "-0.0"])
@pytest.mark.parametrize("rest", ["null", '"\\ud83d"'])
def test_minus_zero_is_zero_in_every_company(spelling: str, rest: str) -> None:
    assert decode_as(f'{{"n":{spelling},"rest":{rest}}}'.encode(), PAIR).n == 0


@pytest.mark.parametrize(
    "text",
    [
        '{"n":"3"}',
        '{"n":1.5}',
        '{"n":true}',
        '{"n":1e300}',
        '{"rest":1}',
        "[]",
        '{"n":"\\ud83d"}',
        '{"\\ud83d":1}',
    ],
)
def test_typed_reading_refuses_another_shape(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_as(text.encode(), PAIR)


@pytest.mark.parametrize("text", ['{"n":1', '{"n":1e999}', '{"n":1,"rest":NaN}', '{"n":1,"rest":"\xff}'])
def test_typed_reading_refuses_what_is_not_json(text: str) -> None:
    with pytest.raises(JsonSyntaxError):
        decode_as(text.encode("latin-1"), PAIR)


class Chain(msgspec.Struct):
    next: Chain | None = None


def test_typed_reading_of_a_deep_type_is_refused_by_name() -> None:
    with pytest.raises(JsonSyntaxError, match=r"nesting too deep.*Chain"):
        decode_as(nested(DEEP, '{"next":', "}", core="null").encode(), msgspec.json.Decoder(Chain))


def test_the_standard_library_agrees_on_ordinary_texts() -> None:
    value = {"a": [1, -2, 0.5, "x\n", None, True], "é": {"b": "漢\U0001f600"}}
    assert encode(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert decode(json.dumps(value)) == value
