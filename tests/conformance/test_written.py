"""Every file that dsh's own backend wrote, judged as dsh judged it, apart from what is decided otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from seedline.cli.verbs.inspect import inspect_file
from seedline.errors import ArtifactError, SeedlineError
from seedline.events.codec import encode_event
from seedline.events.event import Event
from seedline.jsonvalue import decode
from seedline.session.header import SessionHeader
from seedline.session.repair import closers
from seedline.storage.jsonl.file import LogFile, check_identity, read_log, upgraded
from seedline.storage.jsonl.frames import read_frames, whole_frames
from seedline.storage.jsonl.verify import list_problems
from tests.conformance.corpus import CORPUS, digest, events_digest, read_json

WRITTEN = CORPUS / "written"
MANIFEST = read_json("written", "manifest.json")


class Ours(NamedTuple):
    """A decision of ours and what it makes of a file.

    The file is `refused`, or `whole`: it holds what the undamaged file holds, and `torn` says what is still
    to be repaired. With `own_text` only the texts of the results that repair would add are other ones.
    """

    reason: str
    refused: str | None = None
    whole: bool = False
    torn: str | None = None
    own_text: bool = False


WORDING = "a text for a model is worded by who writes it, unless a recording holds it"
DELIBERATE: Final = {
    "torn/none-packed/minus-1-byte": Ours(
        "a whole last record that lacks only its line end is kept", whole=True, torn="missing-newline"
    ),
    "torn/none-packed/blank-line-inside": Ours("blank lines between records are accepted", whole=True),
    "torn/none-packed/huge-int-data": Ours("a number that is not finite is refused", refused="corrupt"),
    "torn/none-packed/time-float": Ours("a bad envelope is refused by every way to read", refused="corrupt"),
    "interrupted/tool-not-started/none-packed": Ours(WORDING, own_text=True),
    "interrupted/tool-not-started/zstd-packed": Ours(WORDING, own_text=True),
}


class File(NamedTuple):
    """One file of the manifest: `probe` is what dsh returned for it, None for the source of damaged ones."""

    name: str
    facts: Any
    probe: Any
    case: Any

    @property
    def path(self) -> Path:
        return WRITTEN / self.facts["path"]

    @property
    def ours(self) -> Ours:
        return DELIBERATE.get(self.name) or Ours("", whole=self.probe is None)


def manifest_files() -> Iterator[File]:
    for case in MANIFEST:
        if "source" in case:
            yield File(f"{case['case']}/_source", case["source"], None, case)
        for group in ("variants", "sessions", "cases"):
            for name, entry in case.get(group, {}).items():
                yield File(f"{case['case']}/{name}", entry["file"], entry["probe"], case | entry)


FILES = list(manifest_files())
WHOLE = next(file.probe for file in FILES if file.name == "torn/none-packed/crlf")
"""What dsh returned for the source of the damaged files, read with other line ends."""


def dsh_refusal(file: File) -> str | None:
    """The kind of our error for what dsh said, None for a file that it reads.

    Its errors have hardly a name; its listing tells them apart: it passes over a file without a header, and
    fails on one that lies in the folder of another session.
    """
    error = file.probe["readFrom0"].get("error")
    if error is None or error["name"] == "SessionFormatUnsupportedError":
        return error and "format-unsupported"
    listed = file.probe["list"]
    return "identity-mismatch" if "error" in listed else "corrupt" if listed else "not-a-session"


def refusal(file: File) -> str | None:
    return None if file.ours.whole else file.ours.refused or dsh_refusal(file)


def probe_of(file: File) -> Any:
    """What dsh returned for the file, or for the one that holds the same by our decision."""
    return WHOLE if file.ours.whole else file.probe


def each(files: Iterable[File]) -> pytest.MarkDecorator:
    """Run a test for each of the files."""
    return pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in files])


REFUSED = [file for file in FILES if refusal(file)]
READ = [file for file in FILES if not refusal(file)]
read = cache(read_log)


def log_of(file: File) -> LogFile:
    return read(file.path)


def added_to(file: File) -> list[Event]:
    """The events that would close an open turn."""
    return closers(upgraded(log_of(file)))


# --- the manifest ------------------------------------------------------------------------------------


def paths_in(value: Any) -> Iterator[str]:
    """Every path that stands anywhere in the manifest."""
    if isinstance(value, dict):
        yield from (value["path"],) if "path" in value else ()
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from paths_in(member)


def test_every_file_of_the_manifest_and_of_the_folder_is_judged() -> None:
    judged = [file.facts["path"] for file in FILES]
    assert sorted(judged) == sorted(paths_in(MANIFEST))
    assert len([file for file in FILES if file.probe]) == 62
    stored = {path.relative_to(WRITTEN).as_posix() for path in WRITTEN.rglob("session.jsonl*")}
    repaired = {file.probe["load"]["afterFile"] for file in REPAIRED}
    assert stored == {*judged, *repaired}


@each(FILES)
def test_the_bytes_are_those_that_dsh_was_given(file: File) -> None:
    data = file.path.read_bytes()
    assert (len(data), digest(data)) == (file.facts["bytes"], file.facts["sha256"])


def test_every_deliberate_difference_is_one() -> None:
    by_name = {file.name: file for file in FILES}
    assert all(ours.reason for ours in DELIBERATE.values())
    for name, ours in DELIBERATE.items():
        file = by_name[name]
        if ours.own_text:
            assert events_digest(added_to(file)) != file.case["closersSha256"]
        else:
            theirs = dsh_refusal(file) or file.probe["readFrom0"]
            assert theirs != (ours.refused or WHOLE["readFrom0"])


# --- files that are refused --------------------------------------------------------------------------


@each(REFUSED)
def test_a_file_is_refused_for_the_same_reason(file: File) -> None:
    with pytest.raises(ArtifactError) as refused:
        check_identity(file.path, read_log(file.path).header)
    assert (refused.value.kind, refused.value.path) == (refusal(file), str(file.path))


# --- files that read ---------------------------------------------------------------------------------


@each(READ)
def test_a_file_holds_the_events_that_dsh_read(file: File) -> None:
    log, stored = log_of(file), probe_of(file)["readFrom0"]
    check_identity(file.path, log.header)
    assert log.layout == ("complete" if stored["events"] else "header-only")
    assert log.encoding == ("zstd" if file.path.suffix == ".zstd" else "jsonl")
    assert (len(log.events), events_digest(log.events)) == (stored["events"], stored["canonicalSha256"])
    assert [event.seq for event in log.events] == list(range(stored["events"]))


@each(READ)
def test_a_file_holds_the_header_that_dsh_read(file: File) -> None:
    log = log_of(file)
    expected = dict(probe_of(file)["inspect"]["meta"])
    assert header_facts(log.header, log.inherited_event_count) == expected


def header_facts(header: SessionHeader, cut: int) -> dict[str, Any]:
    facts = {
        "version": header.version,
        "id": header.id,
        "createdAt": header.created_at,
        "cwd": header.cwd,
        "parentSession": header.parent_session,
        "seedLength": cut if header.is_seeded else None,
        "delegationDepth": header.delegation_depth,
    }
    return {name: value for name, value in facts.items() if value is not None}


@each(file for file in READ if file.name.startswith("direct/"))
def test_the_events_are_those_that_were_appended(file: File) -> None:
    appended = decode((WRITTEN / file.case["case"] / "events.json").read_bytes())
    assert len(appended) == file.case["logicalEvents"]
    assert [decode(encode_event(event)) for event in log_of(file).events] == appended


@each(file for file in READ if file.probe and file.path.suffix == ".zstd")
def test_whole_frames_hold_the_text_that_dsh_read(file: File) -> None:
    data, raw = file.path.read_bytes(), file.probe["readRaw"]
    frames, _ = whole_frames(data)
    text = b"".join(read_frames(data, frames))
    assert len(frames) == file.case.get("frames", len(frames))
    assert (len(text), digest(text)) == (raw["bytes"], raw["sha256"])


# --- what repair would do ----------------------------------------------------------------------------


@each(READ)
def test_an_open_turn_is_closed_as_dsh_closes_it(file: File) -> None:
    log, added, loaded = log_of(file), added_to(file), probe_of(file)["inspect"]
    whole = [*log.events, *added]
    assert [event.type for event in whole][-4:] == loaded["lastTypes"]
    assert len(whole) == loaded["events"]
    if not file.ours.own_text:
        assert events_digest(whole) == loaded["canonicalSha256"]
    if "closers" in file.case:
        assert list(map(without_text, added)) == [bare(closer) for closer in file.case["closers"]]


def without_text(event: Event) -> Any:
    return bare(decode(encode_event(event)))


def bare(closer: Any) -> Any:
    """A closer set aside the text for the model; type, seq, time, sources, ids and error stay."""
    if "message" not in closer["data"]:
        return closer
    message = closer["data"]["message"]
    blocks = [{**block, "content": []} for block in message["content"]]
    return {**closer, "data": {**closer["data"], "message": {**message, "content": blocks}}}


@each(READ)
def test_what_is_torn_is_what_dsh_cut_away(file: File) -> None:
    torn, before = log_of(file).torn, file.path.read_bytes()
    if file.ours.whole or file.probe["load"]["beforeIsPrefixOfAfter"]:
        assert (torn and torn.reason) == file.ours.torn
        return
    after = (WRITTEN / file.probe["load"]["afterFile"]).read_bytes()
    assert torn
    assert torn.offset + torn.bytes == len(before)
    assert after[: torn.offset] == before[: torn.offset]
    assert (len(after) == torn.offset) is (added_to(file) == [])


REPAIRED = [file for file in FILES if file.probe and "afterFile" in file.probe["load"]]


@each(file for file in REPAIRED if not file.ours.refused)
def test_a_file_that_dsh_repaired_needs_nothing(file: File) -> None:
    log, loaded = read(WRITTEN / file.probe["load"]["afterFile"]), file.probe["load"]
    assert (len(log.events), events_digest(log.events)) == (loaded["events"], loaded["canonicalSha256"])
    assert (log.torn, closers(log.events)) == (None, [])


# --- looking -----------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@each(FILES)
def test_looking_at_a_file_changes_nothing(file: File, tmp_path: Path) -> None:
    path = tmp_path.joinpath(*file.path.parts[-3:])
    path.parent.mkdir(parents=True)
    shutil.copyfile(file.path, path)
    before = tree(tmp_path)
    with suppress(SeedlineError):
        inspect_file(str(path), with_digest=True)
    list_problems(path)
    assert tree(tmp_path) == before
