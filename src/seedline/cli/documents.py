"""The `--json` documents, one class for each; the reference page is made from them.

They are contracts: a member keeps its name and meaning, new ones may join. Paths are given back as they were
named. Digests are lower-case hex SHA-256 over canonical JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict


class Failed(TypedDict):
    """What went wrong with one path."""

    kind: Annotated[str, "the error's kind, see [errors](errors.md)"]
    message: Annotated[str, "the facts, and the next step"]
    path: Annotated[str | None, "the file"]
    line: Annotated[int | None, "physical line from 1, the header being line 1"]
    offset: Annotated[int | None, "byte of the file"]
    turn: NotRequired[Annotated[int | float, "of an unfinished call"]]
    step: NotRequired[Annotated[int | float, "of an unfinished call"]]


class FailureDocument(TypedDict):
    """What any verb prints when it fails."""

    error: Annotated[Failed, "the failure that set the exit code"]
    errors: NotRequired[Annotated[list[Failed], "all of them, when several paths failed"]]


class Missing(TypedDict):
    """Why a figure cannot be computed, in place of it."""

    kind: Annotated[str, "the error's kind"]
    seq: Annotated[int | None, "the event"]
    message: Annotated[str, "what is wrong"]


class NoFigure(TypedDict):
    """In place of a figure that the events do not allow to compute."""

    error: Annotated[Missing, "why"]


class Messages(TypedDict):
    """What the model would see."""

    count: Annotated[int, "how many messages"]
    roles: Annotated[list[str], "their roles, in order"]
    digest: Annotated[str | None, "of the message list"]


class SurfaceFigures(TypedDict):
    """The surface that the events build."""

    nodes: Annotated[int, "messages on it"]
    replacements: Annotated[int, "replaces that took effect"]


class TornTail(TypedDict):
    """What a crash left at the end of a file."""

    offset: Annotated[int, "the byte from which on it is torn"]
    bytes: Annotated[int, "how many bytes; 0 where a whole last record lacks only its line end and is kept"]
    reason: Annotated[str, "`unparsable`, `torn-frame` or `missing-newline`"]


class InspectDocument(TypedDict):
    """All figures are of the events as stored, before old shapes are brought to the current form."""

    path: Annotated[str, "the file"]
    layout: Annotated[Literal["complete", "projected", "header-only"], "whether rows have seq and time"]
    encoding: Annotated[Literal["jsonl", "zstd"], "by content, not by name"]
    header: Annotated[dict[str, Any], "the known members that the file has, and `isSeeded`"]
    inheritedEventCount: Annotated[int, "leading events that came from the parent"]
    events: Annotated[int, "all events"]
    ownEvents: Annotated[int, "those after the inherited ones"]
    typeCounts: Annotated[dict[str, int], "events of each type, by name"]
    digest: Annotated[str | None, "of the event list; null with `--no-digest`"]
    messages: Annotated[Messages | NoFigure, "after every check that building the session makes"]
    surface: Annotated[SurfaceFigures | NoFigure, "by the surface markers alone"]
    closers: Annotated[list[str] | NoFigure, "types of the events that a repair would append"]
    torn: Annotated[TornTail | None, "the torn tail; null when the file ends cleanly"]


class ScriptFigures(TypedDict):
    """One session's script: what its own model calls were answered."""

    path: Annotated[str, "the file"]
    recordedId: Annotated[str, "the id in its header"]
    key: Annotated[str | None, "lineage key, `0` for the root; null outside the root's tree"]
    grade: Annotated[
        Literal["exact", "recovered", "content", "twins", "ordered"], "how sure its place in the tree is"
    ]
    entries: Annotated[int, "model calls"]
    chunkCounts: Annotated[list[int], "chunks of each"]
    digest: Annotated[str, "of the entry list"]


class ScriptDocument(TypedDict):
    """The sessions of one tree: the root's first, then depth first by lineage key."""

    sessions: Annotated[list[ScriptFigures], "one for each file"]


class ConvertDocument(TypedDict):
    """What was written."""

    path: Annotated[str, "the file read"]
    out: Annotated[str, "the file written"]
    layout: Annotated[Literal["complete", "projected"], "its layout"]
    packing: Annotated[Literal["packed", "unpacked"], "its packing"]
    encoding: Annotated[Literal["jsonl", "zstd"], "its encoding"]
    events: Annotated[int, "events in it: all good ones of the file read"]
    bytes: Annotated[int, "its size"]
    torn: Annotated[TornTail | None, "the torn tail of the file read, which the new one lacks"]


class FoundProblem(TypedDict):
    """One thing that is wrong."""

    kind: Annotated[str, "the kind of the error that reading would raise, or `torn`"]
    line: Annotated[int | None, "physical line from 1"]
    offset: Annotated[int | None, "byte of the file; of a zstd file, where the frame begins"]
    seq: Annotated[int | None, "the event"]
    message: Annotated[str, "what is wrong"]


class CheckedFile(TypedDict):
    """What is wrong with one file, in file order."""

    path: Annotated[str, "the file"]
    ok: Annotated[bool, "true when nothing is wrong and nothing is to be repaired"]
    events: Annotated[int, "events that read, in the right place or not"]
    problems: Annotated[list[FoundProblem], "all of them"]


class VerifyDocument(TypedDict):
    """Every path given, in order; also those that cannot be opened."""

    files: Annotated[list[CheckedFile], "one for each path"]


class DroppedBytes(TypedDict):
    """Bytes of the damaged file that the copy lacks."""

    line: Annotated[int | None, "the first physical line of them"]
    offset: Annotated[int, "where in the file"]
    bytes: Annotated[int, "how many"]
    reason: Annotated[str, "why they could not be kept"]


class SeqRange(TypedDict):
    """Seqs from the first to the last, both included."""

    first: Annotated[int, "the first"]
    last: Annotated[int, "the last"]


class RepairDocument(TypedDict):
    """What the mended copy holds and lacks."""

    path: Annotated[str, "the damaged file, unchanged"]
    out: Annotated[str, "the copy"]
    events: Annotated[int, "events kept, each with its seq"]
    appended: Annotated[list[str], "types of the events appended after them to close an open turn"]
    dropped: Annotated[list[DroppedBytes], "what is not in the copy, in file order"]
    lostSeqs: Annotated[SeqRange | None, "the seqs that the damaged file shows and the copy lacks"]
    goodRecordsAfter: Annotated[int, "whole records behind the damage, not kept: nothing is renumbered"]


class DifferenceCause(TypedDict):
    """The earliest upstream event that made a replay differ."""

    key: Annotated[str, "lineage key of its session"]
    seq: Annotated[int, "the event"]
    type: Annotated[str, "its type"]
    kind: Annotated[
        Literal["record", "tool-result", "child-answer", "prompt", "schema", "clock", "fed-input"],
        "what it is; `record` when nothing upstream differs",
    ]


class ReplayDivergence(TypedDict):
    """The first event that differs."""

    seq: Annotated[int, "the event"]
    turn: Annotated[int | None, "the turn it is in, null before the first"]
    step: Annotated[int | None, "the step it is in, null before the turn's first"]
    type: Annotated[str, "its type; `session` for a fact of the header"]
    path: Annotated[str, "JSON Pointer into the event; empty where a whole event is missing or not expected"]
    expected: Annotated[Any, "what the record has there; null for nothing"]
    actual: Annotated[Any, "what the replay made there; null for nothing"]
    cause: Annotated[DifferenceCause | None, "what made it differ"]


class ReplayedSession(TypedDict):
    """One session. Of an identical one, `events` = `inherited` + `compared` + `fed`."""

    path: Annotated[str, "the file; in a scenario folder the path given, `/`, the file name"]
    key: Annotated[str, "lineage key, `0` for the root of a run"]
    grade: Annotated[Literal["exact", "recovered", "content", "twins", "ordered"], "how it was bound"]
    status: Annotated[Literal["identical", "diverged", "not-replayable", "error"], "the verdict"]
    events: Annotated[int, "all events"]
    inherited: Annotated[int, "those that seed the run: before the last end-seed mark, or the cut"]
    compared: Annotated[int, "those that the loop made again; the content of chunks and results is given"]
    fed: Annotated[int, "those that were handed in whole"]
    divergence: Annotated[ReplayDivergence | None, "where it diverged"]


class ReplayedScenario(TypedDict):
    """One path: the worst verdict of its replayable sessions."""

    path: Annotated[str, "as given"]
    status: Annotated[Literal["identical", "diverged", "not-replayable", "error"], "the verdict"]
    reason: Annotated[
        str | None,
        "why it is an error; or why not replayable: the first that holds of `header-without-version`, "
        "`old-shapes`, `no-turns`, `no-inbox`",
    ]
    sessions: Annotated[list[ReplayedSession], "depth first by lineage key; forks and strangers last"]


class ReplaySummary(TypedDict):
    """Figures over all paths."""

    identical: Annotated[int, "scenarios"]
    diverged: Annotated[int, "scenarios"]
    notReplayable: Annotated[int, "scenarios"]
    error: Annotated[int, "scenarios"]
    compared: Annotated[int, "events of all sessions"]
    fed: Annotated[int, "events of all sessions"]


class ReplayDocument(TypedDict):
    """Every path given, in order; also those that cannot be read."""

    scenarios: Annotated[list[ReplayedScenario], "one for each path"]
    summary: Annotated[ReplaySummary, "over all of them"]
    error: NotRequired[Annotated[Failed, "the failure of a path that cannot be read"]]
    errors: NotRequired[Annotated[list[Failed], "all of them, when there are several"]]


class UsageFigures(TypedDict):
    """Sums over requests, failed ones included. The input counts are disjoint."""

    inputTokens: Annotated[int, "tokens read that no cache held"]
    outputTokens: Annotated[int, "tokens written"]
    cacheReadTokens: Annotated[int, "tokens read from a cache"]
    cacheWriteTokens: Annotated[int, "tokens written to a cache"]
    reasoningTokens: Annotated[int, "the part of the output that was reasoning"]
    requests: Annotated[int, "model calls"]
    turns: Annotated[int, "turns started"]
    toolCalls: Annotated[int, "tool calls started"]


class SessionStats(TypedDict):
    """What one session spent itself; inherited history is its parent's."""

    path: Annotated[str, "the file"]
    id: Annotated[str, "the session's id"]
    key: Annotated[str, "lineage key, `0` for the root of a run"]
    own: Annotated[UsageFigures, "of its own events"]


class StatsDocument(TypedDict):
    """Sessions depth first by lineage key, trees in the order given."""

    sessions: Annotated[list[SessionStats], "every session that the paths name"]
    tree: Annotated[UsageFigures, "the sum over them"]


class ListedSessionFigures(TypedDict):
    """One stored session."""

    id: Annotated[str | None, "the session's id; null where its header does not read"]
    place: Annotated[str, "a path, or a row of a database"]
    title: Annotated[str | None, "the latest title in the log"]
    createdAt: Annotated[int | None, "milliseconds since the Unix epoch"]
    cwd: Annotated[str | None, "working directory"]
    parentSession: Annotated[str | None, "the session it was spawned or forked from"]
    origin: Annotated[str | None, "`subagent` or null"]
    error: Annotated[Missing | None, "why it cannot be read"]


class ListDocument(TypedDict):
    """Sessions of a store, the newest first, damaged ones at the end."""

    sessions: Annotated[list[ListedSessionFigures], "as many as were asked for"]
    more: Annotated[int, "how many were left out"]


class TailDocument(TypedDict):
    """The end of a session log."""

    path: Annotated[str, "the file or the id that was named"]
    id: Annotated[str, "the session's id"]
    events: Annotated[list[dict[str, Any]], "the last events, each with the members of its row"]


DOCUMENTS: dict[str, type] = {
    "inspect": InspectDocument,
    "script": ScriptDocument,
    "convert": ConvertDocument,
    "verify": VerifyDocument,
    "repair": RepairDocument,
    "replay": ReplayDocument,
    "stats": StatsDocument,
    "ls": ListDocument,
    "tail": TailDocument,
}
"""Verb -> the document it prints with `--json`."""
