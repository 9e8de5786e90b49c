"""A backend whose calls fail, block or tear on command, around a real one; and a clock one has to ring."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Gate
from typing import Literal, TypeVar, TypeVarTuple

import anyio
import msgspec

from seedline.errors import StorageError
from seedline.events.event import Event
from seedline.session.header import SessionHeader, SessionLogOffset
from seedline.session.sequence import Events
from seedline.storage.base import (
    Backend,
    Capabilities,
    ListedSession,
    Prefix,
    RawArtifact,
    StoredSession,
    StoredSuffix,
    TornTail,
    Writer,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
CallName = Literal[
    "create",
    "open",
    "read",
    "read_from",
    "revision",
    "list",
    "delete",
    "close",
    "append",
    "repair",
    "give-back",
]
PATIENCE_SECONDS = 10.0


class Made(msgspec.Struct, frozen=True):
    """One call that was made: for `append` and `repair` with the seqs it was given, else with none."""

    call: CallName
    session_id: str
    seqs: tuple[int, ...] = ()
    prefix: Prefix | None = None


@dataclass
class _Fault:
    error: Exception
    times: float
    after: bool


@dataclass
class Barrier:
    """A call that waits: `reached` is set when it is under way, it goes on at `open`."""

    reached: Gate = field(default_factory=Gate)
    _opened: Gate = field(default_factory=Gate)

    def open(self) -> None:
        self._opened.set()

    def wait(self) -> None:
        self.reached.set()
        if not self._opened.wait(PATIENCE_SECONDS):
            raise TimeoutError("a blocked call was never let go on; open its barrier")


class FaultyBackend:
    """See `storage.base.Backend`; `made` lists the calls that reached it, in order."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.made: list[Made] = []
        self._faults: dict[CallName, _Fault] = {}
        self._barriers: dict[CallName, Barrier] = {}
        self._torn: dict[str, TornTail] = {}

    # --- commands ----------------------------------------------------------------------------------

    def fail(
        self,
        *calls: CallName,
        error: Exception | None = None,
        times: float = float("inf"),
        after: bool = False,
    ) -> None:
        """Let each of `calls` raise, `times` times; with `after` once the work is done all the same."""
        for call in calls:
            self._faults[call] = _Fault(error or StorageError("the disk is gone"), times, after)

    def mend(self) -> None:
        """Let every call succeed."""
        self._faults.clear()

    @contextmanager
    def blocked(self, call: CallName) -> Generator[Barrier, None, None]:
        """Let every `call` inside wait at a barrier, which opens at the end."""
        barrier = self._barriers[call] = Barrier()
        try:
            yield barrier
        finally:
            del self._barriers[call]
            barrier.open()

    def tear(self, session_id: str, torn: TornTail) -> None:
        """Pretend that a torn tail follows a stored session until its writer repairs or appends."""
        self._torn[session_id] = torn

    def batches(self, session_id: str) -> list[tuple[int, ...]]:
        """Return the seqs of each batch appended to a session, also of those that failed."""
        return [made.seqs for made in self.made if made.call == "append" and made.session_id == session_id]

    # --- the machinery -----------------------------------------------------------------------------

    def through(self, made: Made, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Note a call, then block, fail or do it as commanded."""
        self.made.append(made)
        if made.call in self._barriers:
            self._barriers[made.call].wait()
        fault = self._faults.get(made.call)
        if fault is None or fault.times <= 0:
            return work(*args)
        fault.times -= 1
        if fault.after:
            work(*args)
        raise fault.error

    def mended(self, session_id: str) -> TornTail | None:
        """Return and forget the pretended torn tail of a session."""
        return self._torn.pop(session_id, None)

    def _as_torn(self, stored: StoredSession) -> StoredSession:
        torn = self._torn.get(stored.header.id)
        return stored if torn is None else msgspec.structs.replace(stored, torn=torn)

    # --- the seam ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def create(
        self, header: SessionHeader, inherited_event_count: SessionLogOffset, prefix: Prefix | None = None
    ) -> Writer:
        made = Made("create", header.id, prefix=prefix)
        return FaultyWriter(
            self, self.through(made, self.inner.create, header, inherited_event_count, prefix)
        )

    def open(self, session_id: str) -> tuple[StoredSession, Writer]:
        stored, writer = self.through(Made("open", session_id), self.inner.open, session_id)
        return self._as_torn(stored), FaultyWriter(self, writer)

    def read(self, session_id: str) -> StoredSession:
        return self._as_torn(self.through(Made("read", session_id), self.inner.read, session_id))

    def read_from(self, session_id: str, seq: int) -> StoredSuffix:
        return self.through(Made("read_from", session_id), self.inner.read_from, session_id, seq)

    def revision(self, session_id: str) -> str:
        torn = " torn" if session_id in self._torn else ""
        return self.through(Made("revision", session_id), self.inner.revision, session_id) + torn

    def list(self) -> Iterator[ListedSession]:
        return self.through(Made("list", ""), self.inner.list)

    def follow(
        self, session_id: str, seq: int, stopped: Callable[[], bool], *, wait_seconds: float = 1.0
    ) -> Iterator[Events]:
        return self.inner.follow(session_id, seq, stopped, wait_seconds=wait_seconds)

    def delete(self, session_id: str) -> None:
        self.through(Made("delete", session_id), self.inner.delete, session_id)

    def locate(self, header: SessionHeader) -> str | None:
        return self.inner.locate(header)

    def raw(self, session_id: str) -> RawArtifact:
        return self.inner.raw(session_id)

    def close(self) -> None:
        self.through(Made("close", ""), self.inner.close)


class FaultyWriter:
    """See `storage.base.Writer`."""

    def __init__(self, backend: FaultyBackend, inner: Writer) -> None:
        self._backend = backend
        self._inner = inner

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    @property
    def next_seq(self) -> int:
        return self._inner.next_seq

    def append(self, events: Sequence[Event]) -> None:
        self._backend.through(self._made("append", events), self._inner.append, events)
        self._backend.mended(self.session_id)

    def repair(self, closers: Sequence[Event]) -> TornTail | None:
        torn = self._backend.through(self._made("repair", closers), self._inner.repair, closers)
        pretended = self._backend.mended(self.session_id)
        return torn or (pretended and msgspec.structs.replace(pretended, kept_at="beside the log"))

    def close(self) -> None:
        self._backend.through(self._made("give-back"), self._inner.close)

    def _made(self, call: CallName, events: Sequence[Event] = ()) -> Made:
        return Made(call, self.session_id, tuple(event.seq for event in events))


class HeldClock:
    """A clock that stands still and whose sleepers sleep until it is rung; `asked` lists for how long."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._sleepers: list[anyio.Event] = []

    @property
    def sleepers(self) -> int:
        """How many sleep at the moment."""
        return len(self._sleepers)

    def now(self) -> int:
        return 0

    def ring(self) -> None:
        """Wake everybody who sleeps."""
        for sleeper in self._sleepers:
            sleeper.set()

    async def sleep(self, milliseconds: int) -> None:
        self.asked.append(milliseconds)
        sleeper = anyio.Event()
        self._sleepers.append(sleeper)
        try:
            await sleeper.wait()
        finally:
            self._sleepers.remove(sleeper)
