"""The digests of the `--json` documents: lower-case hex SHA-256 over canonical JSON.

An event list is one canonical line per event joined by LF; any other list is hashed as one array. Rows go
through the encoder in batches, and packed rows turn into lines without becoming events first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

import msgspec

from seedline.events.codec import encode_event
from seedline.events.packing import PACKED_TYPES, PackedRow
from seedline.jsonvalue import canonical, canonical_text, decode
from seedline.session.sequence import Events

_BATCH: Final = 64
_decode_lines = msgspec.json.Decoder().decode_lines
_encode_lines = msgspec.json.Encoder(order="sorted").encode_lines


def events_digest(events: Events) -> str:
    """Return the digest of `events` as stored; of none, the hash of no bytes."""
    digest = hashlib.sha256()
    for number, block in enumerate(_blocks(events)):
        digest.update(b"\n" + block if number else block)
    return digest.hexdigest()


def list_digest(items: Iterable[bytes]) -> str:
    """Return the digest of the array of `items`, each the JSON text of one value."""
    return hashlib.sha256(b"[" + b",".join(map(canonical_text, items)) + b"]").hexdigest()


def _blocks(events: Events) -> Iterator[bytes]:
    """Yield the canonical lines of `events` in order, several joined by LF at a time."""
    waiting: list[bytes] = []
    for row in events.rows():
        if not isinstance(row, PackedRow):
            waiting.append(row if isinstance(row, bytes) else encode_event(row))
            if len(waiting) < _BATCH:
                continue
        if waiting:
            yield _canonical_lines(waiting)
            waiting = []
        if isinstance(row, PackedRow):
            yield _packed_lines(row)
    if waiting:
        yield _canonical_lines(waiting)


# --- lines of single events ----------------------------------------------------------------------
#
# A row holds just the envelope's keys, so its canonical line is the canonical text of the row. The
# encoder's sorted form is that text unless the row holds what `_is_usual` looks for.

_ALIKE: Final = bytes.maketrans(b"123456789E\xef\xf0\xf1\xf2\xf3\xf4", b"000000000e\xee\xee\xee\xee\xee\xee")
_STRING_REST: Final = re.compile(rb'(?:[^"\\]|\\.)*+"')
_COLON: Final = re.compile(rb"[ \t]*:")


def _canonical_lines(rows: list[bytes]) -> bytes:
    text = b"\n".join(rows)
    if _is_usual(text):
        try:
            return _encode_lines(_decode_lines(text))[:-1]
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            pass
    if len(rows) == 1:
        return canonical(decode(text))
    half = len(rows) // 2
    return _canonical_lines(rows[:half]) + b"\n" + _canonical_lines(rows[half:])


def _is_usual(text: bytes) -> bool:
    """False when `text` may hold what the encoder writes in another form; true never errs.

    That is: fractions, exponents, integers of 16 digits, minus zero, escaped surrogates, and keys with
    characters from U+E000 on, whose order by code unit differs from that by code point.
    """
    alike = text.translate(_ALIKE)
    if b"0." in alike or b"0e" in alike or b"0" * 16 in alike:
        return False
    if b"-0" in text or b"\\ud" in text or b"\\uD" in text:
        return False
    return not _has_high_key(text, alike)


def _has_high_key(text: bytes, alike: bytes) -> bool:
    at = alike.find(b"\xee")
    while at >= 0:
        rest = _STRING_REST.match(text, at)
        if rest is None or _COLON.match(text, rest.end()):
            return True
        at = alike.find(b"\xee", rest.end())
    return False


# --- lines of packed rows ------------------------------------------------------------------------


def _packed_lines(row: PackedRow) -> bytes:
    """Return the lines of a packed row that its reader has checked, without building its events."""
    try:
        value: dict[str, Any] = msgspec.json.decode(row.line)
    except msgspec.DecodeError:  # escaped halves of characters
        value = decode(row.line)
    data: dict[str, Any] = value["data"]
    tool = value["type"] == "tool-call-chunks"
    member = "argumentsDelta" if tool else "text"
    chunk = {name: data[name] for name in ("index", "id", "name") if name in data}
    chunk |= {member: None, "type": PACKED_TYPES[value["type"]]}
    shell = canonical({"data": {"chunk": chunk, "step": data["step"], "turn": data["turn"]}, "seq": row.seq})
    mark = b'"%b":null' % member.encode()
    before, _, after = shell.partition(mark)
    before += mark.removesuffix(b"null")
    after = after.removesuffix(b"%d}" % row.seq)
    texts = _texts(data["args" if tool else "texts"])
    members = zip(texts, accumulate(data["dt"], initial=row.time), strict=True)
    return b"\n".join(
        b'%b%b%b%d,"time":%d,"type":"assistant/chunk"}' % (before, text, after, seq, time)
        for seq, (text, time) in enumerate(members, row.seq)
    )


def _texts(members: list[str]) -> list[bytes]:
    """Return the canonical text of each string."""
    try:
        return _encode_lines(members)[:-1].split(b"\n")
    except UnicodeEncodeError:
        return [canonical(member) for member in members]
