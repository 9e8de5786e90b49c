"""Sidecars that replace or patch a script, and placeholders that a live request fills in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from seedline.errors import JsonSyntaxError, OverrideRefusalCode, OverrideRefusedError, PlaceholderError
from seedline.events.chunks import CHUNKS
from seedline.jsonvalue import decode, encode, is_count
from seedline.replay.entries import Chunks, ChunksEntry, CutEntry, HangEntry, ScriptEntry, ThrowEntry
from seedline.replay.jsregex import UnsupportedPatternError, compile_js

# --- sidecars ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replacement:
    """A list of entries that stands in place of the derived script; the log is not needed for it."""

    entries: tuple[ScriptEntry, ...]


@dataclass(frozen=True, slots=True)
class Patch:
    """One entry for the 0-based place `at`; the place after the last entry appends."""

    at: int
    entry: ScriptEntry


@dataclass(frozen=True, slots=True)
class Patches:
    """Entries for single places of a derived script, each place once. `path` is the sidecar's, for errors."""

    patches: tuple[Patch, ...]
    path: str | None = None


Override = Replacement | Patches


def read_override(text: bytes, path: str | None = None) -> Override:
    """Return the sidecar of a JSON text: a list of entries, or an object with exactly `patches`.

    Raises `OverrideRefusedError` with the code of what is wrong: `document`, `patch`, `entry`, `chunk`,
    `kind` or `index-duplicate`.
    """
    try:
        value = decode(text)
    except JsonSyntaxError as error:
        raise OverrideRefusedError("document", error.reason, path) from None
    reader = _Reader(path)
    if isinstance(value, list):
        entries = enumerate(cast("list[Any]", value))
        return Replacement(tuple(reader.entry(entry, f"entry {n}") for n, entry in entries))
    return reader.patches(value)


def apply_override(entries: Sequence[ScriptEntry], override: Override) -> list[ScriptEntry]:
    """Return the script with the sidecar applied.

    Raises `OverrideRefusedError` (`index-range`) for a patch beyond the place after the last derived entry.
    """
    if isinstance(override, Replacement):
        return list(override.entries)
    patched = list(entries)
    for patch in override.patches:
        if patch.at > len(entries):
            reason = f"a patch is for entry {patch.at}, the derived script has {len(entries)}"
            raise OverrideRefusedError("index-range", reason, override.path)
        patched[patch.at : patch.at + 1] = [patch.entry]
    return patched


class _Reader:
    """Reads the parts of one sidecar; every error names its path."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    def refuse(self, code: OverrideRefusalCode, reason: str) -> OverrideRefusedError:
        return OverrideRefusedError(code, reason, self.path)

    def patches(self, value: Any) -> Patches:
        patches = cast("dict[str, Any]", value).get("patches") if _has_keys(value, {"patches"}) else None
        if not isinstance(patches, list):
            raise self.refuse("document", "a sidecar is a list of entries, or an object with only `patches`")
        read = tuple(self.patch(patch, n) for n, patch in enumerate(cast("list[Any]", patches)))
        places = [patch.at for patch in read]
        for place in places:
            if places.count(place) > 1:
                raise self.refuse("index-duplicate", f"several patches are for entry {place}")
        return Patches(read, self.path)

    def patch(self, value: Any, number: int) -> Patch:
        if not _has_keys(value, {"at", "entry"}) or not is_count(value["at"]):
            raise self.refuse("patch", f"patch {number} needs exactly `at`, an index from 0, and `entry`")
        return Patch(value["at"], self.entry(value["entry"], f"the entry of patch {number}"))

    def entry(self, value: Any, what: str) -> ScriptEntry:
        if not isinstance(value, dict):
            raise self.refuse("entry", f"{what} is no object")
        record = cast("dict[str, Any]", value)
        match record.get("kind"):
            case "chunks":
                self.check(record, what, {"kind", "chunks"})
                return ChunksEntry(self.chunks(record["chunks"], what))
            case "throw":
                self.check(record, what, {"kind", "chunks", "message", "code"}, texts=("message", "code"))
                return ThrowEntry(self.chunks(record["chunks"], what), record["message"], record["code"])
            case "hang":
                optional = {"readyFile"} & record.keys()
                self.check(record, what, {"kind", *optional}, texts=tuple(optional))
                return HangEntry(record.get("readyFile"))
            case kind:
                raise self.refuse(
                    "kind", f"{what} has the kind {str(kind)[:40]!r}, not chunks, throw or hang"
                )

    def check(self, record: dict[str, Any], what: str, keys: set[str], texts: tuple[str, ...] = ()) -> None:
        if record.keys() != keys:
            raise self.refuse("entry", f"{what} needs exactly the keys {', '.join(sorted(keys))}")
        for name in texts:
            if not isinstance(record[name], str) or not record[name]:
                raise self.refuse("entry", f"{what}: {name!r} is not a non-empty string")

    def chunks(self, value: Any, what: str) -> tuple[bytes, ...]:
        if not isinstance(value, list):
            raise self.refuse("entry", f"{what}: `chunks` is no list")
        for number, chunk in enumerate(cast("list[Any]", value)):
            kind = cast("dict[str, Any]", chunk).get("type") if isinstance(chunk, dict) else None
            if not isinstance(kind, str) or kind not in CHUNKS:
                raise self.refuse("chunk", f"{what}: chunk {number} has no known type")
        return tuple(map(encode, cast("list[Any]", value)))


def _has_keys(value: Any, keys: set[str]) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).keys() == keys


# --- placeholders ------------------------------------------------------------------------------------

MARKER: Final = "{{fromRequest:"
_MARKER_BYTES: Final = MARKER.encode()


def substitute(entry: ScriptEntry, request_strings: Sequence[str]) -> ScriptEntry:
    """Return `entry` with each `{{fromRequest:pattern}}` in its strings filled in from the live request.

    The pattern is searched in `request_strings` joined by newlines; the last match wins, of it the first
    group if that took part. An entry without a placeholder is returned as it is. Raises `PlaceholderError`.
    """
    corpus = "\n".join(request_strings)
    match entry:
        case HangEntry(ready_file=ready_file):
            return HangEntry(ready_file and fill_in(ready_file, corpus))
        case ThrowEntry():
            entry = replace(entry, message=fill_in(entry.message, corpus), code=fill_in(entry.code, corpus))
        case ChunksEntry() | CutEntry():
            pass
    chunks = _fill_in_chunks(entry.chunks, corpus)
    return entry if chunks is entry.chunks else replace(entry, chunks=chunks)


def _fill_in_chunks(chunks: Chunks, corpus: str) -> Chunks:
    if not any(map(_may_hold_marker, chunks)):
        return chunks
    return tuple(_fill_in_chunk(chunk, corpus) if _may_hold_marker(chunk) else chunk for chunk in chunks)


def _may_hold_marker(chunk: bytes) -> bool:
    return _MARKER_BYTES in chunk or b"\\u" in chunk


def _fill_in_chunk(chunk: bytes, corpus: str) -> bytes:
    holder = [decode(chunk)]
    filled = False
    stack: list[Any] = [holder]
    while stack:
        container = stack.pop()
        for name, member in list(_members(container)):
            if isinstance(member, str):
                if MARKER in member:
                    container[name] = fill_in(member, corpus)
                    filled = True
            elif isinstance(member, list | dict):
                stack.append(member)
    return encode(holder[0]) if filled else chunk


def _members(container: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(container, dict):
        return cast("dict[str, Any]", container).items()
    return enumerate(cast("list[Any]", container))


def fill_in(text: str, corpus: str) -> str:
    """Return `text` with its placeholders replaced by what they find in `corpus`. Raises `PlaceholderError`.

    A placeholder ends at the last two of the first run of closing braces, so that a pattern may end in a
    quantifier like `{2}`; what was filled in is not searched again.
    """
    parts: list[str] = []
    at = 0
    while (start := text.find(MARKER, at)) >= 0:
        end = _end_of_placeholder(text, start)
        parts += (text[at:start], _found(text[start:end], corpus))
        at = end
    return "".join([*parts, text[at:]])


def _end_of_placeholder(text: str, start: int) -> int:
    end = text.find("}}", start + len(MARKER))
    if end < 0:
        raise PlaceholderError("unterminated", text[start:], "two closing braces are missing")
    end += 2
    while text.startswith("}", end):
        end += 1
    return end


def _found(placeholder: str, corpus: str) -> str:
    try:
        found = compile_js(placeholder[len(MARKER) : -2]).last_in(corpus)
    except UnsupportedPatternError as error:
        raise PlaceholderError("pattern", placeholder, str(error)) from None
    if found is None:
        raise PlaceholderError("no-match", placeholder, "nothing in the request matches the pattern")
    return found


def request_strings(messages: Any) -> list[str]:
    """Return every string of a JSON value, keys left out, in the order in which they stand."""
    found: list[str] = []
    stack: list[Any] = [messages]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            stack += reversed(cast("dict[str, Any]", value).values())
        elif isinstance(value, list | tuple):
            stack += reversed(cast("list[Any]", value))
    return found
