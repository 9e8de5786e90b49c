"""The storage seam. Whoever writes a backend reads this file, and runs `testing/store_contract.py` on it.

A backend keeps sessions: a header with its cut, and events that are only ever appended. Its methods block;
the coordinator calls them from worker threads. What holds on every backend:

1. **Acknowledged means durable.** When `append` or `repair` returns, what it wrote survives `kill -9` and a
   power cut. When it raises, either nothing of the batch is stored, or the next open finds a torn tail.
2. **One writer.** `create` and `open` hand out the session's only `Writer`. A second one, in any process, is
   refused at once with the owner named. A killed process frees its sessions; a writer that lost its lease is
   refused at its next append and never interleaves.
3. **Contiguous.** Stored seqs are 0, 1, 2, ...; `append` takes exactly the next ones.
4. **Nothing without events.** `create` stores nothing; header and first batch appear together.
5. **Reading never writes**, never waits for a writer, and sees a prefix of what was appended.
6. **Payloads are bytes.** What was appended comes back byte for byte.
7. **A fork copies no history** where `Capabilities.shares_prefixes` says so: its prefix is read through the
   session that owns it, and deleting or damaging that session's own listing never changes what a fork reads.
8. **One damaged session hides no other.** A listing shows it with its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from seedline.errors import ArtifactError
from seedline.events.event import Event
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do beyond the seam. A False one carries its reason in `reasons`, by field name."""

    durable: bool
    """Sessions outlive the process."""
    shares_prefixes: bool
    """A fork stores a reference to its prefix."""
    raw_artifacts: bool
    """`raw` returns the stored text of a session."""
    locates: bool
    """`locate` names a place that other programs can open."""
    reasons: dict[str, str] = {}


class TornTail(msgspec.Struct, frozen=True):
    """What a crash left behind the last good event; the writer cuts it before its first append.

    `seq` is the first seq that is lost, `size` counts bytes or rows, `kept_at` says where the cut bytes were
    saved once they were cut.
    """

    seq: int
    size: int
    reason: str
    kept_at: str | None = None


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A whole session as stored, checked and in the current event shapes; an open turn is still open.

    `revision` is opaque: equal exactly while nothing was appended or repaired.
    """

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    events: Events
    revision: str
    torn: TornTail | None = None


class StoredSuffix(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a session from a seq on. `events.first_seq` is that seq, also when there are none."""

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    events: Events


class ListedSession(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a listing. Of a damaged session the header may be missing and `error` says why.

    `place` is a path or a row id, for people.
    """

    session_id: str | None
    header: SessionHeader | None
    revision: str | None
    place: str
    error: ArtifactError | None = None


class Prefix(msgspec.Struct, frozen=True):
    """A stored history to begin with: the first `count` events of the session `owner`."""

    owner: str
    count: SessionLogOffset


class RawArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A session as text: `filename` is `session.jsonl`, `content` its complete lines."""

    header: SessionHeader
    inherited_event_count: SessionLogOffset
    filename: str
    content: bytes


class Writer(Protocol):
    """The right to append to one session, held until `close` or the end of the process."""

    @property
    def session_id(self) -> str: ...

    @property
    def next_seq(self) -> int:
        """The seq that the next append begins with."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Store one batch, durable on return. An empty batch does nothing, and creates nothing.

        Raises `StaleWriterError` when the lease is lost or another hand has written, `BatchRefusedError` for
        seqs that do not follow, `StorageError` for a failure of the medium. Nothing of the batch counts then.
        """
        ...

    def repair(self, closers: Sequence[Event]) -> TornTail | None:
        """Cut a torn tail, keep its bytes beside the log, and append `closers`; return what was cut.

        Raises what `append` raises.
        """
        ...

    def close(self) -> None:
        """Give the session free. May be called again."""
        ...


class Backend(Protocol):
    """A place where sessions are kept."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...

    def create(
        self, header: SessionHeader, inherited_event_count: SessionLogOffset, prefix: Prefix | None = None
    ) -> Writer:
        """Return the writer of a new session, of which nothing is stored before its first batch.

        With a prefix the session begins with stored events of another one, and `next_seq` is their count;
        they become part of the session with the first batch, without being encoded again. Raises
        `SessionExistsError`, `SessionBusyError`, `SessionNotFoundError` for the owner of the prefix,
        `SessionIdRefusedError`, `HeaderRefusedError`.
        """
        ...

    def open(self, session_id: str) -> tuple[StoredSession, Writer]:
        """Return a stored session and its writer, read under the lease.

        Raises `SessionNotFoundError`, `SessionBusyError`, and what `read` raises.
        """
        ...

    def read(self, session_id: str) -> StoredSession:
        """Return a whole session. Raises `SessionNotFoundError` or another `ArtifactError`."""
        ...

    def read_from(self, session_id: str, seq: int) -> StoredSuffix:
        """Return the events from `seq` on, reading little more than those. No repair, no closers.

        At or past the end there are none. Raises `ValueError` for a `seq` that is no count, and what `read`
        raises for the part that is read.
        """
        ...

    def revision(self, session_id: str) -> str:
        """Return the revision without reading the events. Raises `SessionNotFoundError`."""
        ...

    def list(self) -> Iterator[ListedSession]:
        """Yield every session, damaged ones with their error, in no particular order; headers only."""
        ...

    def follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], *, wait_seconds: float = 1.0
    ) -> Iterator[Events]:
        """Yield what is stored from `seq` on, then what others append, as it comes, until `stopped()`.

        Yields an empty run at least every `wait_seconds`, so that the caller can look up.
        """
        ...

    def delete(self, session_id: str) -> None:
        """Remove a session from every listing and lookup; what forks read of it stays.

        Raises `SessionNotFoundError`, or `SessionBusyError` while it has a writer.
        """
        ...

    def locate(self, header: SessionHeader) -> str | None:
        """Return where a session of this header lies or would lie, None where there is no such place."""
        ...

    def raw(self, session_id: str) -> RawArtifact:
        """Return the stored text. Raises `UnsupportedOperationError` where the capability is missing."""
        ...

    def close(self) -> None:
        """Release what the backend holds, writers included. May be called again."""
        ...
