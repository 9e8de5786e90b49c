"""From chunks to a message: 3.2 of the loop's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedline.errors import UnclosedBlockError
from seedline.llm.assemble import Assembler, is_blank

Chunk = dict[str, Any]


def start(index: int, kind: str = "text") -> Chunk:
    return {"type": "block-start", "index": index, "blockType": kind}


def delta(index: int, text: str, kind: str = "text") -> Chunk:
    return {"type": f"{kind}-delta", "index": index, "text": text}


def args(index: int, text: str, call_id: str = "c", name: str | None = None) -> Chunk:
    named = {} if name is None else {"name": name}
    return {"type": "tool-call-delta", "index": index, "id": call_id, **named, "argumentsDelta": text}


def end(index: int, block: Chunk) -> Chunk:
    return {"type": "block-end", "index": index, "block": block}


def finish(kind: str = "stop", state: Any = None) -> Chunk:
    return {"type": "finish", "reason": {"kind": kind}, **({"replayState": state} if state else {})}


def said(text: str) -> Chunk:
    return {"type": "text", "text": text}


def made(call_id: str = "c", name: str = "t", arguments: str = "{}") -> Chunk:
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}


def assembled(*chunks: Chunk) -> Assembler:
    assembler = Assembler()
    for chunk in chunks:
        assembler.take(chunk)
    return assembler


@pytest.mark.parametrize(
    ("chunks", "content"),
    [
        pytest.param([start(0), delta(0, "a"), delta(0, "b")], [said("ab")], id="deltas join"),
        pytest.param([delta(1, "b"), delta(0, "a")], [said("b"), said("a")], id="order of first mention"),
        pytest.param(
            [delta(0, "Hm", "reasoning")], [{"type": "reasoning", "text": "Hm"}], id="a delta opens its block"
        ),
        pytest.param(
            [start(0), start(0, "reasoning"), delta(0, "a")], [said("a")], id="a second start is ignored"
        ),
        pytest.param(
            [start(0, "reasoning"), delta(0, "a")],
            [{"type": "reasoning", "text": "a"}],
            id="a delta of another kind keeps the type",
        ),
        pytest.param([delta(0, "x"), end(0, said("y"))], [said("y")], id="the end is authoritative"),
        pytest.param([end(0, said("y")), delta(0, "x")], [said("y")], id="a delta after the end is ignored"),
        pytest.param([end(0, said("y")), end(0, said("z"))], [said("y")], id="the first end wins"),
        pytest.param(
            [end(0, {"type": "video", "url": "u"})], [{"type": "video", "url": "u"}], id="unknown block"
        ),
        pytest.param(
            [args(0, '{"a":', name="t"), args(0, "1}", "d", "")],
            [made("d", "t", '{"a":1}')],
            id="arguments join, the last id counts, an empty name does not",
        ),
        pytest.param([start(7, "tool-call")], [made("call-7", "", "")], id="a call without id or name"),
        pytest.param(
            [
                args(0, "A0", "a", "t"),
                args(2, "C0", "c", "u"),
                args(0, "A1", "a", "t"),
                args(2, "C1", "c", "u"),
            ],
            [made("a", "t", "A0A1"), made("c", "u", "C0C1")],
            id="interleaved calls with a hole between",
        ),
        pytest.param([delta(0, "\ud83d"), delta(0, "\ude00")], [said("😀")], id="split surrogates meet"),
        pytest.param([delta(0, "\ud83d"), delta(0, "x")], [said("\ud83dx")], id="a lone surrogate stays"),
        pytest.param([start(0)], [said("")], id="an open block without text"),
        pytest.param([{"type": "heartbeat"}], [], id="an unknown chunk"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_chunks_become_blocks(chunks: list[Chunk], content: list[Chunk]) -> None:
    assert assembled(*chunks, finish()).content() == (content, None)


def test_an_open_block_of_another_type_cannot_be_built() -> None:
    with pytest.raises(UnclosedBlockError, match="video"):
        assembled(start(0, "video"), finish()).content()


BOTH = [end(0, said("a")), end(1, made())]


@pytest.mark.parametrize(
    ("kind", "state", "kept"),
    [
        ("stop", {"response": 1}, {"response": 1}),
        ("stop", {"response": 1, "blocks": ["x", "y"]}, {"response": 1, "blocks": ["x", "y"]}),
        ("stop", {"response": 1, "blocks": ["x"]}, None),
        ("max-tokens", {"response": 1}, {"response": 1}),
        ("max-tokens", {"response": 1, "blocks": ["x", "y"]}, {"response": 1, "blocks": ["x"]}),
        ("max-tokens", {"response": 1, "blocks": ["x", "y", "z"]}, None),
    ],
)
def test_replay_metadata_goes_with_its_blocks(kind: str, state: Any, kept: Any) -> None:
    content, found = assembled(*BOTH, finish(kind, state)).content()
    assert found == kept
    assert len(content) == (1 if kind == "max-tokens" else 2)


def test_the_last_usage_and_the_last_finish_win() -> None:
    usages = [{"type": "usage", "usage": {"inputTokens": n, "outputTokens": 0}} for n in (1, 2)]
    assembler = assembled(*usages, finish("max-tokens"), finish("stop"))
    assert assembler.usage == {"inputTokens": 2, "outputTokens": 0}
    assert assembler.finish_kind == "stop"
    assert assembled().finish_kind == "stop"


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        ([start(0), delta(0, "Hi")], [said("Hi")]),
        (
            [end(0, said("Hi")), delta(1, " \n\u2028\ufeff"), delta(2, "Hm", "reasoning")],
            [said("Hi"), {"type": "reasoning", "text": "Hm"}],
        ),
        ([args(0, "{", name="t"), start(1, "video"), end(2, {"type": "video"})], []),
        ([start(0, "text"), end(0, made())], []),
    ],
)
def test_only_visible_text_survives_a_cut(chunks: list[Chunk], shown: list[Chunk]) -> None:
    assert assembled(*chunks).visible_prefix() == shown


def test_what_counts_as_blank() -> None:
    # ECMAScript trims a byte order mark and leaves the C1 control NEL and the separators U+001C to U+001F.
    assert is_blank("\ufeff\u00a0\v")
    assert not is_blank("\x85")
    assert not is_blank("\x1c")


pieces = st.lists(st.tuples(st.integers(0, 3), st.text(max_size=4)), max_size=30)


@given(pieces)
def test_interleaving_never_mixes_blocks(chunks: list[tuple[int, str]]) -> None:
    content, _ = assembled(*(delta(index, text) for index, text in chunks), finish()).content()
    order = list(dict.fromkeys(index for index, _ in chunks))
    assert [block["text"] for block in content] == [
        "".join(t for i, t in chunks if i == index) for index in order
    ]
