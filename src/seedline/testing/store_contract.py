"""What `storage.base` promises, as a class of tests that every backend passes.

A backend's author runs it with a few lines; the numbers are those of dsh's storage contract (format version
0, 6.1), letters and tests without either are ours:

    class TestMine(StoreContract):
        @pytest.fixture
        def open_backend(self, tmp_path):
            return lambda: MyBackend(tmp_path)

`open_backend` opens one and the same place each time, as another process would, and several at once. Further
fixtures let the contract look at damage and size: `damage`, `tear`, `weigh`. What a backend lacks by its
`Capabilities`, or gives no such fixture for, is an exemption: the test passes and the report names it, see
`testing.exemptions`. Number 7 (a call that was cancelled before) has no counterpart among calls that block;
number 12 (values that are no JSON) is refused above this seam.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from typing import Any, Final, cast

import pytest
from msgspec import UNSET, Raw, structs

from seedline.errors import (
    ArtifactError,
    BatchRefusedError,
    HeaderRefusedError,
    SessionBusyError,
    SessionExistsError,
    SessionFormatUnsupportedError,
    SessionIdRefusedError,
    SessionNotFoundError,
    SessionPersistenceCorruptionError,
    StaleWriterError,
    UnsupportedOperationError,
)
from seedline.events.codec import read_row
from seedline.events.event import Event, ReplaceOp
from seedline.events.packing import PackedRow
from seedline.jsonvalue import encode
from seedline.session.header import (
    START,
    CallSpawn,
    HostPlace,
    HostSpawn,
    SessionHeader,
    SessionLogOffset,
    from_header_line,
)
from seedline.session.repair import closers
from seedline.session.sequence import Events
from seedline.storage.base import Backend, Capabilities, Prefix, StoredSession, Writer
from seedline.testing.coordinator_contract import OpenBackend, answer_data, event, header_of, types, user_data
from seedline.testing.exemptions import PROPERTY
from seedline.testing.other_process import other_process

ToSession = Callable[[str], object]
Weigh = Callable[[], int]
PATIENCE_SECONDS: Final = 20.0

# --- the place -------------------------------------------------------------------------------------


class Place:
    """The empty place of one test, what the test opened there, and what it is exempt from."""

    def __init__(self, open_backend: OpenBackend, record: Callable[[str, object], None]) -> None:
        self._open_backend = open_backend
        self._record = record
        self._opened: list[Backend] = []

    def open(self) -> Backend:
        """Open the place as another process would; it is closed at the end."""
        backend = self._open_backend()
        self._opened.append(backend)
        return backend

    @property
    def capabilities(self) -> Capabilities:
        """What the backend says of itself. It is opened and closed for the question."""
        backend = self._open_backend()
        backend.close()
        return backend.capabilities

    def lacks(self, capability: str) -> bool:
        """Say whether the test is exempt for want of a capability, which the report then names."""
        capabilities = self.capabilities
        if getattr(capabilities, capability):
            return False
        self.exempt(capability, capabilities.reasons[capability])
        return True

    def exempt(self, what: str, why: str) -> None:
        """Name an exemption in the report. The test has to return."""
        self._record(PROPERTY, f"{what}: {why}")

    def close(self) -> None:
        for backend in self._opened:
            backend.close()


def held() -> set[str]:
    """Return the threads and descriptors that this process has."""
    gc.collect()
    names = [name for name in os.listdir("/dev/fd") if _is_open(int(name))]
    return {f"descriptor {name}" for name in names} | {str(thread) for thread in threading.enumerate()}


def _is_open(descriptor: int) -> bool:
    """False for the descriptor that the listing itself used."""
    with suppress(OSError):
        os.fstat(descriptor)
        return True
    return False


# --- what is stored --------------------------------------------------------------------------------


def turn(first: int = 0, number: int = 1) -> list[Event]:
    """The balanced turn of the contract: six events."""
    return [*open_turn(first, number), *close_turn(first + 3, number)]


def open_turn(first: int = 0, number: int = 1) -> list[Event]:
    """The beginning of a turn: three events."""
    return [
        event("turn/start", first, {"turn": number}),
        event("user/message", first + 1, user_data(), surface_op="append"),
        event("step/start", first + 2, {"turn": number, "step": 1}),
    ]


def close_turn(first: int, number: int = 1) -> list[Event]:
    """The rest of a turn: three events."""
    return [
        event("assistant/message", first, answer_data(number), surface_op="append"),
        event("step/end", first + 1, {"turn": number, "step": 1}),
        event("turn/end", first + 2, {"turn": number, "reason": {"kind": "completed"}}),
    ]


def marks(first: int, stop: int, by: str = "s") -> list[Event]:
    """Events of the seqs [first, stop) that tell who wrote them."""
    return [event("session/end-seed", seq, {"by": by}) for seq in range(first, stop)]


def deltas(first: int, stop: int) -> list[Event]:
    """Pieces of a streamed answer, which a backend may store as one row."""
    return [
        Event("assistant/chunk", seq, 1000 + 7 * seq, Raw(DELTA % encode(f"piece {seq}")))
        for seq in range(first, stop)
    ]


DELTA: Final = b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":%b}}'

PAYLOADS: Final[dict[str, bytes]] = {
    "null": b"null",
    "false": b"false",
    "text": b'"a"',
    "number": b"0",
    "empty": b"{}",
    "empty key": b'{"":0}',
    "prototype": b'{"__proto__":{"a":1}}',
    "duplicate keys": b'{"a":1,"b":2,"a":3}',
    "other spellings": b'{ "a" :\t[ 1.0 , 1e2 , -0, 1E+2, "\\u00E9\\/" ] }',
    "lone surrogates": b'{"\\ud83d":"\\ude00 \\udfff"}',
    "escaped pair": b'"\\ud83d\\ude00"',
    "beyond the first plane": '"😀 \U0010ffff 漢é"'.encode(),
    "raw line ends": '"\x7f \x85 \u2028 \u2029 \ufeff"'.encode(),
    "escaped NUL": b'"\\u0000\\n\\r"',
    "big integer": b'{"n":123456789012345678901234567890,"m":-9007199254740993}',
    "long fraction": b"0.1000000000000000055511151231257827",
    "like a header": b'{"type":"session","version":99,"id":"x"}',
    "like a row": b'{"type":"text-chunks","seq0":0,"time0":0,"data":{}}',
    "deep": b"[" * 400 + b"]" * 400,
    "long": b'"' + b"x" * 300_000 + b'"',
    "delta": DELTA % b'"a"',
    "delta with an escape": DELTA % b'"\\u0041"',
    "delta with blanks": (DELTA % b'"a"').replace(b":", b": "),
    "delta with a fraction": (DELTA % b'"a"').replace(b"1", b"1.0"),
    "delta with a surrogate": DELTA % b'"\\ud83d"',
    "delta in another order": b'{"step":1,"turn":1,"chunk":{"index":0,"text":"a","type":"text-delta"}}',
    "delta with a key twice": (DELTA % b'"a"').replace(b'"step":1', b'"step":2,"step":1'),
    "delta with more": (DELTA % b'"a"').replace(b'"index":0', b'"index":0,"more":null'),
}
"""Payloads by what is odd about them."""


def oddities() -> list[Event]:
    """Each payload four times in a row, so that a run may be packed, under a known and an unknown type."""
    kinds = [("assistant/chunk", UNSET), ("plugin/thing", True)]
    seqs = count()
    return [
        Event(name, next(seqs), 1000, Raw(text), ignorable=cast("Any", ignorable))
        for name, ignorable in kinds
        for text in PAYLOADS.values()
        for _ in range(4)
    ]


ENVELOPES: Final = [
    *turn(),
    event("user/message", 6, user_data(), surface_op=ReplaceOp("replace", 1, 3), source_event_seqs=(1, 3)),
    event("assistant/message", 7, answer_data(1), surface_op="append", source_event_seqs=()),
    Event("assistant/chunk", 8, -(2**53) + 1, Raw(b"{}"), ignorable=True),
    Event("other/é\ud800 \0\n😀", 9, 2**53 - 1, Raw(b"{}"), ignorable=True),
    Event("12", 10, 0, Raw(b"{}"), ignorable=True),
]
"""Everything that an envelope may carry."""

SPAWN: Final = CallSpawn(turn=1, step=2, call=0, n=3, call_id="c\ud800", tool="subagent")
HEADERS: Final[dict[str, tuple[SessionHeader, int]]] = {
    "bare": (header_of(), 0),
    "working directory": (header_of(cwd="/w/a b/漢"), 0),
    "root directory": (header_of(cwd="/"), 0),
    "odd directory": (header_of(cwd="/w\udfff/../x\n:\\~"), 0),
    "long directory": (header_of(cwd="/w" * 400), 0),
    "seeded": (header_of(is_seeded=True, parent_session="p"), 3),
    "seeded with nothing": (header_of(is_seeded=True, parent_session="p"), 0),
    "parent": (header_of(parent_session="p/\ud800"), 0),
    "empty texts": (header_of(parent_session="", agent_preset=""), 0),
    "origin and depth": (header_of(parent_session="p", origin="subagent", delegation_depth=2), 0),
    "depth zero": (header_of(delegation_depth=0), 0),
    "agent preset": (header_of(agent_preset="reviewer 😀"), 0),
    "spawned by a call": (header_of(parent_session="p", spawn=SPAWN), 0),
    "spawned by a host": (header_of(parent_session="p", spawn=HostSpawn(HostPlace(2, 0))), 0),
    "created at the epoch": (SessionHeader(id="s", created_at=0), 0),
    "created far ahead": (SessionHeader(id="s", created_at=2**53 - 1), 0),
    "everything": (
        header_of(
            cwd="/w",
            parent_session="p",
            is_seeded=True,
            origin="subagent",
            delegation_depth=1,
            agent_preset="x",
            spawn=SPAWN,
        ),
        6,
    ),
}
"""Headers with their cut, by what they are about."""

WRONG: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "fractional creation": ({"created_at": 1.5}, 0),
    "negative creation": ({"created_at": -1}, 0),
    "boolean creation": ({"created_at": True}, 0),
    "late creation": ({"created_at": 2**53}, 0),
    "relative directory": ({"cwd": "w"}, 0),
    "empty directory": ({"cwd": ""}, 0),
    "other version": ({"version": 1}, 0),
    "other origin": ({"origin": "elsewhere"}, 0),
    "negative depth": ({"delegation_depth": -1}, 0),
    "cut of an unseeded session": ({}, 3),
    "negative cut": ({"is_seeded": True}, -1),
}
"""Headers that no session has, and their cut."""

IDS: Final = (
    *("A", "a", "12", "12.0", "x", "x\0", "é", "e\u0301", "😀", "\ud800", "漢" * 50, "x" * 255),
    *(".", "..", "../..", "a/b", "a~002Fb", "/etc/passwd", "C:\\x", "~", "-", "_no-cwd", "session.jsonl"),
    *(" ", "\n", "*", "%", "%41", "'; DROP TABLE events; --", '"', "null", "s?x=1#y", "s.tmp", "--w--"),
)
"""Ids that look like something else, or like each other."""

NO_IDS: Final = ("", "x" * 256, "漢" * 52)
"""Ids that no session has."""


# --- doing -----------------------------------------------------------------------------------------


def created(store: Backend, session_id: str = "s") -> Writer:
    """Return the writer of a new session of which nothing is stored."""
    return store.create(header_of(session_id), START)


def begun(store: Backend, events: Sequence[Event], session_id: str = "s") -> Writer:
    """Store a new session and return its writer."""
    writer = created(store, session_id)
    writer.append(events)
    return writer


def write(store: Backend, events: Sequence[Event], session_id: str = "s") -> None:
    """Store a new session."""
    begun(store, events, session_id).close()


def add(store: Backend, events: Sequence[Event], session_id: str = "s") -> None:
    """Append to a stored session."""
    _, writer = store.open(session_id)
    with closing(writer):
        writer.append(events)


def forked(store: Backend, owner: str, length: int, child: str) -> Writer:
    """Return the writer of a fork of which nothing is stored."""
    cut = SessionLogOffset(length)
    header = header_of(child, is_seeded=True, parent_session=owner)
    return store.create(header, cut, Prefix(owner, cut))


def fork(store: Backend, owner: str, length: int, child: str, more: int = 2) -> list[Event]:
    """Store a fork of the first events of another session, and return the events of its own."""
    own = marks(length, length + more, child)
    with closing(forked(store, owner, length, child)) as writer:
        writer.append(own)
    return own


def log(store: Backend, session_id: str = "s") -> list[Event]:
    """Return what is stored of a session."""
    return list(store.read(session_id).events)


def ids(store: Backend) -> list[str]:
    """Return the ids that are listed, sorted."""
    return sorted(str(listed.session_id) for listed in store.list())


def uses(store: Backend, session_id: str) -> list[Callable[[], object]]:
    """Return everything that one can do with a stored session."""
    return [
        lambda: store.read(session_id),
        lambda: store.read_from(session_id, 0),
        lambda: store.revision(session_id),
        lambda: next(store.follow(session_id, 0, lambda: False)),
        lambda: store.open(session_id),
        lambda: store.delete(session_id),
    ]


def assert_missing(store: Backend, session_id: str) -> None:
    """Demand that nobody can do anything with a session, since it is not stored."""
    for use in uses(store, session_id):
        with pytest.raises(SessionNotFoundError):
            use()


def assert_free(store: Backend, session_id: str = "s") -> None:
    """Demand that a stored session has no writer."""
    _, writer = store.open(session_id)
    writer.close()


def take(followed: Iterator[Events], wanted: int) -> list[Event]:
    """Return the next events of a follower, as many as are wanted."""
    found: list[Event] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < wanted:
        assert time.monotonic() < deadline, f"{len(found)} of {wanted} events came"
        found += next(followed)
    return found


def open_when_free(store: Backend, session_id: str) -> tuple[StoredSession, Writer]:
    """Open a session whose writer was killed a moment ago."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return store.open(session_id)
        except SessionBusyError:
            assert time.monotonic() < deadline, "the session of a killed process is not free"
            time.sleep(0.01)


@contextmanager
def working(*works: Callable[[threading.Event], object]) -> Generator[None, None, None]:
    """Run threads that start together, told by an event when the block has ended; raise what one raised."""
    done, barrier = threading.Event(), threading.Barrier(len(works))
    failures: list[BaseException] = []

    def run(work: Callable[[threading.Event], object]) -> None:
        barrier.wait()
        try:
            work(done)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


class StoreContract:
    """Provide `open_backend`; see the module."""

    # --- what the backend's author provides --------------------------------------------------------

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        """Return what opens the one place of a test."""
        raise NotImplementedError("return a function that opens a backend over an empty place of this test")

    @pytest.fixture
    def damage(self) -> ToSession | None:
        """Return what spoils the stored header of a session, as a bad medium may, and leaves its events."""
        return None

    @pytest.fixture
    def tear(self) -> ToSession | None:
        """Return what spoils the last stored event of a session, as a crash while it was written may."""
        return None

    @pytest.fixture
    def weigh(self) -> Weigh | None:
        """Return what says how many bytes the place takes on its medium."""
        return None

    # --- what the tests use ------------------------------------------------------------------------

    @pytest.fixture
    def place(
        self, open_backend: OpenBackend, record_property: Callable[[str, object], None]
    ) -> Generator[Place, None, None]:
        """The place of this test. A thread or descriptor that is left at its end fails the test."""
        before = held()
        place = Place(open_backend, record_property)
        yield place
        place.close()
        left = held() - before
        assert not left, f"a closed backend still holds {left}"

    @pytest.fixture
    def store(self, place: Place) -> Backend:
        """The place of this test, opened."""
        return place.open()

    # --- an empty place ----------------------------------------------------------------------------

    def test_an_empty_place_lists_nothing(self, store: Backend) -> None:
        """7. There is nothing in it, and asking leaves nothing."""
        assert list(store.list()) == []
        assert_missing(store, "s")
        assert list(store.list()) == []

    @pytest.mark.parametrize("session_id", [*NO_IDS, *IDS], ids=ascii)
    def test_an_unknown_id_is_not_found(self, store: Backend, session_id: str) -> None:
        """8. Whatever it looks like, beside a session that is stored."""
        write(store, turn(), "another")
        assert_missing(store, session_id)

    def test_creating_stores_nothing(self, place: Place, store: Backend) -> None:
        """6. Of a session without events nobody sees anything; its id is free when the writer closes."""
        writer = created(store)
        writer.append([])
        assert writer.repair([]) is None
        for reader in (store, place.open()):
            assert list(reader.list()) == []
            for use in uses(reader, "s")[:4]:
                with pytest.raises(SessionNotFoundError):
                    use()
        writer.close()
        assert_missing(store, "s")
        write(store, turn())

    def test_header_and_first_batch_appear_together(self, place: Place, store: Backend) -> None:
        """d. A reader finds no session without its events, and none without its header."""
        reader = place.open()

        def look(done: threading.Event) -> None:
            while not done.is_set():
                for listed in reader.list():
                    assert listed.error is None
                    assert listed.header
                    assert structs.replace(listed.header, delegation_depth=None) == header_of(
                        str(listed.session_id)
                    )
                    assert len(log(reader, str(listed.session_id))) == 6

        with working(look, look):
            for number in range(30):
                write(store, turn(), f"s{number}")

    # --- write and read ----------------------------------------------------------------------------

    def test_what_was_appended_comes_back(self, place: Place, store: Backend) -> None:
        """1. The header and exactly equal events, here and where the place is opened again."""
        header = header_of(cwd="/w")
        with closing(store.create(header, START)) as writer:
            assert (writer.session_id, writer.next_seq) == ("s", 0)
            writer.append(turn())
            assert writer.next_seq == 6
        store.close()
        for reader in (place.open(), place.open()):
            stored = reader.read("s")
            assert _same(stored.header, header)
            assert (stored.inherited_event_count, stored.torn) == (0, None)
            assert list(stored.events) == turn()
            assert stored.events.first_seq == 0

    @pytest.mark.parametrize("size", [1, 3, 10_000])
    def test_payloads_come_back_byte_for_byte(self, place: Place, store: Backend, size: int) -> None:
        """f. However they are spelled, and however many are appended at once."""
        events = oddities()
        with closing(created(store)) as writer:
            for first in range(0, len(events), size):
                writer.append(events[first : first + size])
        for found in (log(store), log(place.open()), list(store.read_from("s", 0).events)):
            assert [_oddity(one) for one in found] == [_oddity(one) for one in events]

    def test_envelopes_come_back(self, place: Place, store: Backend) -> None:
        """f. Sources, also none; markers; the ignorable mark; any time; any type."""
        write(store, ENVELOPES)
        assert log(store) == log(place.open()) == ENVELOPES
        assert log(store)[7].source_event_seqs == ()
        assert log(store)[3].source_event_seqs is UNSET

    def test_a_payload_of_several_lines_is_kept_or_refused(self, store: Backend) -> None:
        """f. A backend of lines may refuse one, and then stores nothing of the batch."""
        lines = [*turn(), Event("assistant/chunk", 6, 0, Raw(b'{"turn":1,\n"step":1,"chunk":{}}'))]
        writer = begun(store, turn(), "s")
        with suppress(BatchRefusedError):
            writer.append(lines[6:])
            assert log(store) == lines
            return
        assert log(store) == turn()

    def test_the_clock_may_go_backwards(self, place: Place, store: Backend) -> None:
        """g. The order is that of the seqs, whatever the times say."""
        times = [5, 3, 3, -1, 0, 2**52, 1]
        events = [structs.replace(one, time=at) for one, at in zip(turn(), times, strict=False)]
        write(store, events)
        add(store, [structs.replace(mark, time=-7) for mark in marks(6, 9)])
        assert [one.time for one in log(place.open())] == [*times[:6], -7, -7, -7]
        assert [one.seq for one in log(store)] == list(range(9))

    def test_what_was_read_stays_as_it_was(self, store: Backend) -> None:
        """h. Neither an append nor a delete changes events that somebody holds."""
        writer = begun(store, [*turn(), *deltas(6, 12)])
        held_events = store.read("s").events
        writer.append(marks(12, 14))
        writer.close()
        assert len(held_events) == 12
        store.delete("s")
        write(store, marks(0, 20))
        assert list(held_events) == [*turn(), *deltas(6, 12)]

    @pytest.mark.parametrize("name", HEADERS)
    def test_headers_come_back(self, place: Place, store: Backend, name: str) -> None:
        """i. Every field of a header, and the cut beside it, wherever they are read."""
        header, cut = HEADERS[name]
        with closing(store.create(header, SessionLogOffset(cut))) as writer:
            writer.append(turn())
        for reader in (store, place.open()):
            [listed] = reader.list()
            stored, suffix = reader.read("s"), reader.read_from("s", 4)
            for found in (stored.header, suffix.header, cast("SessionHeader", listed.header)):
                assert _same(found, header)
            assert stored.inherited_event_count == suffix.inherited_event_count == cut

    @pytest.mark.parametrize("name", WRONG)
    def test_a_wrong_header_is_refused_and_leaves_the_id_free(self, store: Backend, name: str) -> None:
        """2. The field is named, and a right header of the same id is taken."""
        fields, cut = WRONG[name]
        with pytest.raises(HeaderRefusedError):
            store.create(structs.replace(header_of(), **fields), cut)
        assert_missing(store, "s")
        write(store, turn())
        assert log(store) == turn()

    def test_a_wrong_creation_time_is_named(self, store: Backend) -> None:
        """2. As the field `createdAt`, with what it should be."""
        with pytest.raises(HeaderRefusedError, match=r"createdAt.*non-negative safe integer"):
            store.create(structs.replace(header_of(), created_at=cast("int", 1.5)), START)

    # --- ids ---------------------------------------------------------------------------------------

    def test_ids_that_look_alike_are_kept_apart(self, place: Place, store: Backend) -> None:
        """j. No id is a path, a pattern or a statement, and no two are one."""
        for number, name in enumerate(IDS):
            write(store, marks(0, number + 1, name), name)
        reader = place.open()
        assert ids(reader) == sorted(IDS)
        for number, name in enumerate(IDS):
            assert log(reader, name) == marks(0, number + 1, name)
            assert reader.read(name).header.id == name
        for name in IDS[::2]:
            store.delete(name)
        assert ids(reader) == sorted(IDS[1::2])

    @pytest.mark.parametrize("name", NO_IDS, ids=ascii)
    def test_an_id_that_no_store_can_hold_is_refused(self, store: Backend, name: str) -> None:
        """j. On every backend, so that sessions can move between them."""
        with pytest.raises((SessionIdRefusedError, HeaderRefusedError)):
            store.create(SessionHeader(id=name, created_at=0), START)
        assert list(store.list()) == []

    def test_an_id_is_given_once(self, place: Place, store: Backend) -> None:
        """k. Also where the new session would lie elsewhere, and while somebody writes the stored one."""
        writer = begun(store, turn())
        for cwd in (None, "/elsewhere"):
            with pytest.raises(SessionExistsError):
                place.open().create(header_of(cwd=cwd), START)
        writer.close()
        for cwd in (None, "/elsewhere"):
            with pytest.raises(SessionExistsError):
                store.create(header_of(cwd=cwd), START)
        assert log(store) == turn()
        assert_free(store)

    # --- appending ---------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "seqs",
        [(0, 1), (5,), (7,), (6, 8), (6, 6), (6, 5), (-1,), (6, 7, 9), (2**53,)],
    )
    def test_seqs_must_follow(self, store: Backend, seqs: tuple[int, ...]) -> None:
        """10 and 11. Stored seqs again, a gap: refused, nothing of the batch counts, the writer goes on."""
        writer = begun(store, turn())
        before = store.revision("s")
        with pytest.raises(BatchRefusedError):
            writer.append([structs.replace(mark, seq=seq) for mark, seq in zip(marks(0, 9), seqs)])  # noqa: B905  # as many marks as there are seqs
        assert (log(store), store.revision("s"), writer.next_seq) == (turn(), before, 6)
        writer.append(marks(6, 8))
        assert log(store) == [*turn(), *marks(6, 8)]

    @pytest.mark.parametrize("wrong", [2**53, -(2**53), 1.5, True])
    def test_a_time_is_a_safe_integer(self, store: Backend, wrong: Any) -> None:
        """10. Nothing of the batch counts, also where it would have begun the session."""
        batch = [*turn(), structs.replace(marks(6, 7)[0], time=wrong)]
        writer = created(store)
        with pytest.raises(BatchRefusedError):
            writer.append(batch)
        assert list(store.list()) == []
        writer.append(turn())
        assert log(store) == turn()

    def test_a_refused_first_batch_stores_nothing(self, store: Backend) -> None:
        """10. The session does not exist, and its writer may still begin it."""
        writer = created(store)
        with pytest.raises(BatchRefusedError):
            writer.append(marks(1, 3))
        assert list(store.list()) == []
        writer.append(marks(0, 3))
        assert log(store) == marks(0, 3)

    def test_an_empty_batch_does_nothing(self, store: Backend) -> None:
        """l. Neither to what is stored nor to its revision."""
        writer = begun(store, turn())
        before = store.revision("s")
        writer.append([])
        assert writer.repair([]) is None
        assert (log(store), store.revision("s"), writer.next_seq) == (turn(), before, 6)

    def test_a_batch_is_any_sequence_and_stays_the_callers(self, store: Backend) -> None:
        """m. A list that is changed afterwards, a tuple, a run of another session with its packed rows."""
        first = [*turn(), *deltas(6, 20)]
        writer = begun(store, first)
        first[:] = marks(0, 3)
        writer.append(tuple(marks(20, 22)))
        whole = store.read("s").events
        with closing(created(store, "t")) as copy:
            copy.append(whole[:9])
            copy.append(whole[9:])
        assert log(store) == log(store, "t") == [*turn(), *deltas(6, 20), *marks(20, 22)]

    def test_many_batches_make_one_log(self, place: Place, store: Backend) -> None:
        """1. By one writer, or by one after the other."""
        for first in range(0, 60, 3):
            writer = begun(store, deltas(0, 1)) if first == 0 else store.open("s")[1]
            for seq in range(max(first, 1), first + 3):
                writer.append(deltas(seq, seq + 1))
            writer.close()
        assert log(place.open()) == deltas(0, 60)

    # --- ranges ------------------------------------------------------------------------------------

    def test_a_suffix_begins_at_each_seq(self, place: Place, store: Backend) -> None:
        """8. Also inside a run that is stored as one row, at the end, and behind it."""
        events = [*turn(), *deltas(6, 30), *marks(30, 32)]
        with closing(store.create(header_of(cwd="/w", is_seeded=True), SessionLogOffset(2))) as writer:
            for first, stop in ((0, 6), (6, 22), (22, 32)):
                writer.append(events[first:stop])
        reader = place.open()
        for seq in [*range(35), 2**53 - 1]:
            suffix = reader.read_from("s", seq)
            assert list(suffix.events) == events[seq:]
            assert suffix.events.first_seq == seq
            assert (suffix.header.cwd, suffix.inherited_event_count) == ("/w", 2)

    @pytest.mark.parametrize("seq", [-1, 1.5, True, 2**53, "1"])
    def test_a_suffix_begins_at_a_count(self, store: Backend, seq: Any) -> None:
        """8. Anything else is refused, for a follower as well."""
        write(store, turn())
        with pytest.raises(ValueError, match="non-negative safe integer"):
            store.read_from("s", seq)
        with pytest.raises(ValueError, match="non-negative safe integer"):
            next(store.follow("s", seq, lambda: False))

    def test_a_suffix_of_an_open_turn_has_no_closers(self, store: Backend) -> None:
        """8. What is stored is shown, and nothing that repair would add."""
        write(store, [*turn(), *open_turn(6, 2)[:1]])
        assert types(store.read_from("s", 6).events) == ["turn/start"]

    def test_a_suffix_of_an_old_log_reads_like_the_whole(self, store: Backend) -> None:
        """8. Where an event needs earlier ones to be read in its current shape, those are found."""
        old: dict[str, Any] = {"turn": 1, "step": 1, "callId": "c", "content": [], "isError": False}
        events = [
            event("turn/start", 0, {"turn": 1, "trigger": {"kind": "user"}}),
            event("user/message", 1, {"content": [], "source": {"kind": "user"}}, surface_op="append"),
            event("tool/result", 2, old, surface_op="append"),
            event("tool/result", 3, old, surface_op=ReplaceOp("replace", 2, 2), source_event_seqs=(2,)),
            event("tool/result", 4, old, surface_op=ReplaceOp("replace", 3, 3), source_event_seqs=(3,)),
        ]
        write(store, events)
        whole = log(store)
        assert whole[4].value["message"]["id"] == "legacy-message:s:2"
        for seq in range(6):
            assert list(store.read_from("s", seq).events) == whole[seq:]

    # --- listing and revisions ---------------------------------------------------------------------

    def test_a_revision_stays_while_nothing_is_appended(self, place: Place, store: Backend) -> None:
        """9 and e. Reading, listing, opening, refusing and reopening leave it; every way to ask agrees."""
        write(store, [*turn(), *open_turn(6, 2)])
        before = store.revision("s")
        _, writer = store.open("s")
        with suppress(BatchRefusedError):
            writer.append(turn())
        writer.close()
        for reader in (store, place.open()):
            list(reader.read_from("s", 3).events)
            assert reader.read("s").revision == before
            assert [listed.revision for listed in reader.list()] == [before]
            assert reader.revision("s") == before

    def test_a_revision_changes_with_each_append(self, place: Place, store: Backend) -> None:
        """9. Also with one that leaves the header, the id and the number of events as they were before."""
        reader = place.open()
        writer = begun(store, marks(0, 1))
        seen = [reader.revision("s")]
        for seq in range(1, 6):
            writer.append(marks(seq, seq + 1))
            seen.append(reader.revision("s"))
        writer.repair(marks(6, 7))
        seen.append(reader.revision("s"))
        writer.close()
        store.delete("s")
        write(store, marks(0, 1))
        seen.append(reader.revision("s"))
        assert len(set(seen)) == len(seen)

    def test_a_listing_shows_every_session_once(self, place: Place, store: Backend) -> None:
        """n. With its header, revision and a place for people; sessions being written and forks too."""
        names = [f"s{number}" for number in range(25)]
        for name in names[:-1]:
            write(store, marks(0, 1, name), name)
        writer = begun(store, turn(), names[-1])
        fork(store, "s0", 1, "fork")
        for reader in (store, place.open()):
            listed = list(reader.list())
            assert sorted(str(one.session_id) for one in listed) == sorted([*names, "fork"])
            for one in listed:
                assert one.error is None
                assert one.place
                assert cast("SessionHeader", one.header).id == one.session_id
        writer.close()

    def test_a_listing_goes_on_while_sessions_come_and_go(self, store: Backend) -> None:
        """n. What was there all the time is listed; what went is listed or not, and is no error."""
        for number in range(20):
            write(store, marks(0, 1), f"s{number}")
        listing = store.list()
        found = [next(listing)]
        kept = {f"s{number}" for number in range(0, 20, 2)}
        for number in range(1, 20, 2):
            store.delete(f"s{number}")
        write(store, marks(0, 1), "new")
        found += listing
        assert [one.error for one in found if one.session_id in kept] == [None] * len(kept)

    # --- one writer --------------------------------------------------------------------------------

    def test_a_second_writer_is_refused_with_the_owner_named(self, place: Place, store: Backend) -> None:
        """b. At once, in the same backend or another one, before the first batch and after it."""
        owner = rf"process {os.getpid()}\b"
        writer = created(store)
        for other in (store, place.open()):
            with pytest.raises(SessionBusyError, match=owner):
                created(other)
        writer.append(turn())
        for other in (store, place.open()):
            for attempt in (other.open, other.delete):
                with pytest.raises(SessionBusyError, match=owner):
                    attempt("s")
        writer.append(marks(6, 7))
        assert log(store) == [*turn(), *marks(6, 7)]

    def test_a_closed_writer_frees_its_session(self, place: Place, store: Backend) -> None:
        """b. It may be closed again, which does nothing to the next one, and stores nothing any more."""
        writer = begun(store, turn())
        writer.close()
        stored, second = place.open().open("s")
        assert list(stored.events) == turn()
        assert second.next_seq == 6
        writer.close()
        with pytest.raises(SessionBusyError):
            store.open("s")
        for call in (writer.append, writer.repair):
            with pytest.raises(StaleWriterError):
                call(marks(6, 7, "late"))
        second.append(marks(6, 7))
        assert log(store) == [*turn(), *marks(6, 7)]

    def test_a_closed_backend_frees_its_sessions(self, place: Place) -> None:
        """b. Those with events and those without; it may be closed again."""
        first = place.open()
        writers = [begun(first, turn(), "a"), begun(first, turn(), "b"), created(first, "c")]
        first.close()
        first.close()
        second = place.open()
        for name in ("a", "b"):
            _, writer = second.open(name)
            writer.append(marks(6, 8))
        write(second, turn(), "c")
        for writer in writers:
            with pytest.raises(StaleWriterError):
                writer.append(marks(writer.next_seq, 9, "late"))
        assert log(second, "a") == log(second, "b") == [*turn(), *marks(6, 8)]

    def test_writers_of_different_sessions_do_not_meet(self, store: Backend) -> None:
        """b. Many at once, each with its own log."""
        writers = [created(store, f"s{number}") for number in range(40)]
        for first in range(0, 6, 2):
            for writer in writers:
                writer.append(marks(first, first + 2, writer.session_id))
        for writer in writers:
            assert log(store, writer.session_id) == marks(0, 6, writer.session_id)
            writer.close()

    def test_threads_write_their_own_sessions(self, store: Backend) -> None:
        """b. Through one backend, whose methods are called from worker threads."""

        def work(name: str) -> Callable[[threading.Event], None]:
            def run(_: threading.Event) -> None:
                with closing(created(store, name)) as writer:
                    for seq in range(15):
                        writer.append(marks(seq, seq + 1, name))

            return run

        with working(*(work(f"s{number}") for number in range(4))):
            pass
        for number in range(4):
            assert log(store, f"s{number}") == marks(0, 15, f"s{number}")

    @pytest.mark.parametrize("stored", [False, True], ids=["new", "stored"])
    def test_of_many_who_want_a_session_one_gets_it(self, place: Place, store: Backend, stored: bool) -> None:
        """b. Whoever is first; the others are refused, and nothing is mixed."""
        if stored:
            write(store, marks(0, 1))
        won: list[tuple[str, Writer]] = []

        def want(name: str, backend: Backend) -> Callable[[threading.Event], None]:
            def run(_: threading.Event) -> None:
                with suppress(SessionBusyError, SessionExistsError):
                    writer = backend.open("s")[1] if stored else created(backend)
                    won.append((name, writer))
                    writer.append(marks(writer.next_seq, 4, name))

            return run

        backends = [store, place.open(), place.open()] * 2
        with working(*(want(f"t{number}", backend) for number, backend in enumerate(backends))):
            pass
        [(name, writer)] = won
        assert log(store) == [*marks(0, stored), *marks(stored, 4, name)]
        writer.close()

    def test_a_session_that_cannot_be_read_is_not_left_busy(self, place: Place, store: Backend) -> None:
        """b. A failed `open` holds nothing."""
        write(store, [event("new/thing", 0, None)])
        for reader in (store, store, place.open()):
            with pytest.raises(SessionFormatUnsupportedError):
                reader.open("s")
        store.delete("s")
        assert list(store.list()) == []

    # --- other processes ---------------------------------------------------------------------------

    def test_a_writer_of_another_process_is_named(self, open_backend: OpenBackend, place: Place) -> None:
        """b. It is refused here while it writes there, and free when it closes."""
        if place.lacks("durable"):
            return

        def work() -> Iterator[object]:
            with closing(open_backend()) as backend:
                writer = created(backend)
                yield
                writer.append(turn())
                yield
                writer.close()
                yield

        with other_process(work) as other:
            other.step()
            here, owner = place.open(), rf"process {other.pid}\b"
            with pytest.raises(SessionBusyError, match=owner):
                created(here)
            assert list(here.list()) == []
            other.step()
            for attempt in (here.open, here.delete):
                with pytest.raises(SessionBusyError, match=owner):
                    attempt("s")
            assert log(here) == turn()
            other.step()
            add(here, marks(6, 8))
            assert other.step() is None
        assert log(here) == [*turn(), *marks(6, 8)]

    def test_a_killed_process_frees_its_sessions(self, open_backend: OpenBackend, place: Place) -> None:
        """b. Those with events, which go on where they are, and those without, which never were."""
        if place.lacks("durable"):
            return

        def work() -> Iterator[object]:
            backend = open_backend()
            kept = begun(backend, turn()), created(backend, "empty"), begun(backend, turn(), "closed")
            kept[2].close()
            yield
            yield kept

        with other_process(work) as other:
            other.step()
            other.kill()
            here = place.open()
            stored, writer = open_when_free(here, "s")
            assert (list(stored.events), stored.torn) == (turn(), None)
            writer.append(marks(6, 8))
            assert log(here) == [*turn(), *marks(6, 8)]
            assert ids(here) == ["closed", "s"]
            write(here, marks(0, 1), "empty")
            assert_free(here, "closed")

    def test_what_was_acknowledged_outlives_a_kill(self, open_backend: OpenBackend, place: Place) -> None:
        """a. Every event of every append that returned, and at most one batch more."""
        if place.lacks("durable"):
            return

        def work() -> Iterator[object]:
            writer = created(open_backend())
            for first in count(0, 3):
                writer.append(marks(first, first + 3))
                yield first + 3

        with other_process(work, told=False) as other:
            acknowledged = 0
            while acknowledged < 30:
                acknowledged = [acknowledged, *other.words()][-1]
            other.kill()
            acknowledged = [acknowledged, *other.words()][-1]
            here = place.open()
            stored, writer = open_when_free(here, "s")
            length = len(stored.events)
            assert acknowledged <= length <= acknowledged + 3
            assert list(stored.events) == marks(0, length)
            writer.repair(marks(length, length + 2))
            assert log(here) == marks(0, length + 2)

    def test_a_log_of_another_process_is_followed(self, open_backend: OpenBackend, place: Place) -> None:
        """c. While it is written there."""
        if place.lacks("durable"):
            return

        def work() -> Iterator[object]:
            with closing(open_backend()) as backend:
                writer = begun(backend, turn())
                yield
                for seq in range(6, 12):
                    writer.append(marks(seq, seq + 1))
                yield

        with other_process(work) as other:
            other.step()
            followed = place.open().follow("s", 4, lambda: False, wait_seconds=0.01)
            assert take(followed, 2) == turn()[4:]
            other.step()
            assert take(followed, 6) == marks(6, 12)

    # --- reading while others write ----------------------------------------------------------------

    def test_a_reader_sees_a_beginning_while_others_write(self, place: Place, store: Backend) -> None:
        """e. It grows, its parts agree, and nobody waits for the writer to close."""
        readers = [store, place.open()]
        writer = begun(store, deltas(0, 1))

        def look(reader: Backend) -> Callable[[threading.Event], None]:
            def run(done: threading.Event) -> None:
                seen = 0
                while not done.is_set():
                    events, suffix = log(reader), reader.read_from("s", 2).events
                    assert events == deltas(0, len(events))
                    assert len(events) >= seen
                    assert list(suffix) == deltas(2, 2 + len(suffix))
                    assert len(suffix) + 2 >= len(events) or len(events) < 2
                    seen = len(events)

            return run

        with working(*map(look, readers * 2)):
            for first in range(1, 121, 3):
                writer.append(deltas(first, first + 3))
        assert log(readers[1]) == deltas(0, 121)

    # --- followers ---------------------------------------------------------------------------------

    def test_a_follower_sees_what_is_appended(self, place: Place, store: Backend) -> None:
        """c. What is stored, then what comes, and empty runs in between so that it can look up."""
        writer = begun(store, turn())
        done: list[bool] = []
        for reader in (store, place.open()):
            followed = reader.follow("s", 2, lambda: bool(done), wait_seconds=0.01)
            assert take(followed, writer.next_seq - 2)[:4] == turn()[2:]
            assert [len(next(followed)) for _ in range(3)] == [0, 0, 0]
            first = writer.next_seq
            writer.append(marks(first, first + 3))
            assert take(followed, 3) == marks(first, first + 3)
            done.append(True)
            assert list(followed) == []
            done.clear()

    def test_a_follower_keeps_up_with_a_thread(self, place: Place, store: Backend) -> None:
        """c. Every event once, in order, in runs that join."""
        writer = begun(store, turn())

        def work(_: threading.Event) -> None:
            for seq in range(6, 60):
                writer.append(marks(seq, seq + 1))

        runs: list[Events] = []
        with working(work):
            deadline = time.monotonic() + PATIENCE_SECONDS
            finished = lambda: sum(map(len, runs)) == 60 or time.monotonic() > deadline  # noqa: E731  # a name for one condition
            for run in place.open().follow("s", 0, finished, wait_seconds=0.01):
                assert run.first_seq == sum(map(len, runs))
                runs.append(run)
        assert [one for run in runs for one in run] == [*turn(), *marks(6, 60)]

    def test_a_follower_may_wait_for_a_seq_to_come(self, store: Backend) -> None:
        """c. Nothing before it is shown."""
        writer = begun(store, turn())
        followed = store.follow("s", 8, lambda: False, wait_seconds=0.01)
        assert len(next(followed)) == 0
        writer.append(marks(6, 10))
        assert take(followed, 2) == marks(8, 10)

    def test_a_follower_that_was_stopped_ends(self, store: Backend) -> None:
        """7. Also before its first look."""
        write(store, turn())
        assert list(store.follow("s", 0, lambda: True)) == []

    def test_a_follower_of_a_fork_begins_with_its_prefix(self, store: Backend) -> None:
        """c and h. And sees nothing of what the parent appends afterwards."""
        parent = begun(store, turn())
        writer = forked(store, "s", 4, "child")
        writer.append(marks(4, 6))
        followed = store.follow("child", 0, lambda: False, wait_seconds=0.01)
        assert take(followed, 6) == [*turn()[:4], *marks(4, 6)]
        parent.append(marks(6, 9))
        writer.append(marks(6, 7))
        assert take(followed, 1) == marks(6, 7)

    def test_a_follower_is_told_when_the_session_is_deleted(self, store: Backend) -> None:
        """c. It would wait for ever."""
        write(store, turn())
        followed = store.follow("s", 0, lambda: False, wait_seconds=0.01)
        assert take(followed, 6) == turn()
        store.delete("s")
        with pytest.raises(SessionNotFoundError):
            take(followed, 1)

    # --- forks -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("length", [0, 1, 5, 6, 9, 14])
    def test_a_fork_begins_with_a_prefix(self, place: Place, store: Backend, length: int) -> None:
        """h. Of any length, also inside a run that is stored as one row; it goes on from there."""
        events = [*turn(), *deltas(6, 12), *marks(12, 14)]
        write(store, events)
        writer = forked(store, "s", length, "child")
        assert (writer.next_seq, ids(store)) == (length, ["s"])
        writer.append([])
        with pytest.raises(BatchRefusedError):
            writer.append(marks(length + 1, length + 2))
        assert ids(store) == ["s"]
        writer.append(marks(length, length + 2, "child"))
        writer.append(marks(length + 2, length + 3, "child"))
        writer.close()
        expected = [*events[:length], *marks(length, length + 3, "child")]
        for reader in (store, place.open()):
            stored = reader.read("child")
            assert list(stored.events) == expected
            assert (stored.inherited_event_count, stored.header.is_seeded) == (length, True)
            for seq in range(len(expected) + 2):
                assert list(reader.read_from("child", seq).events) == expected[seq:]
            assert log(reader) == events

    def test_a_fork_and_its_parent_go_their_own_ways(self, store: Backend) -> None:
        """h. Also where the parent is being written, and writes on before the child's first batch."""
        parent = begun(store, turn())
        child = forked(store, "s", 4, "child")
        parent.append(marks(6, 8))
        child.append(marks(4, 6, "child"))
        parent.append(marks(8, 9))
        child.append(marks(6, 7, "child"))
        assert log(store) == [*turn(), *marks(6, 9)]
        assert log(store, "child") == [*turn()[:4], *marks(4, 7, "child")]

    def test_a_fork_of_a_fork(self, place: Place, store: Backend) -> None:
        """h. At, before and behind the place where the first one begins, and several levels deep."""
        logs = {"s": turn()}
        write(store, logs["s"])
        for owner, length, child in (
            ("s", 4, "a"),
            ("a", 6, "b"),
            ("a", 4, "c"),
            ("a", 2, "d"),
            ("b", 8, "e"),
            ("e", 5, "f"),
            ("f", 0, "g"),
        ):
            logs[child] = [*logs[owner][:length], *fork(store, owner, length, child)]
        for reader in (store, place.open()):
            assert {name: log(reader, name) for name in logs} == logs

    def test_a_fork_outlives_its_parent(self, place: Place, store: Backend) -> None:
        """h. Parents are deleted in any order, also one in the middle, and one whose id is given again."""
        write(store, [*turn(), *deltas(6, 12)])
        child = [*turn(), *deltas(6, 9), *fork(store, "s", 9, "child")]
        grandchild = [*child[:10], *fork(store, "child", 10, "grandchild")]
        store.delete("child")
        assert log(store, "grandchild") == grandchild
        store.delete("s")
        write(store, marks(0, 15, "another"))
        for reader in (store, place.open()):
            assert ids(reader) == ["grandchild", "s"]
            assert_missing(reader, "child")
            assert log(reader, "grandchild") == grandchild
            assert list(reader.read_from("grandchild", 7).events) == grandchild[7:]
        last = [*grandchild[:11], *fork(store, "grandchild", 11, "child")]
        assert log(store, "child") == last
        store.delete("grandchild")
        assert log(store, "child") == last

    def test_an_owner_deleted_before_the_first_batch_leaves_all_or_nothing(self, store: Backend) -> None:
        """h. The writer still stores the whole prefix, or is refused and stores nothing."""
        write(store, turn())
        writer = forked(store, "s", 6, "child")
        store.delete("s")
        with suppress(StaleWriterError):
            writer.append(marks(6, 7))
            assert log(store, "child") == [*turn(), *marks(6, 7)]
            return
        assert list(store.list()) == []
        writer.close()
        write(store, turn(), "child")

    def test_a_prefix_lies_within_a_stored_log(self, store: Backend) -> None:
        """h. A longer one, or one of nobody, is refused, and the id stays free."""
        write(store, turn())
        with pytest.raises(BatchRefusedError, match="6 are stored"):
            forked(store, "s", 7, "child")
        with pytest.raises(SessionNotFoundError):
            forked(store, "nobody", 3, "child")
        with pytest.raises(SessionNotFoundError):
            forked(store, "child", 0, "child")
        with pytest.raises(SessionExistsError):
            forked(store, "s", 3, "s")
        fork(store, "s", 6, "child")
        assert len(log(store, "child")) == 8

    def test_a_fork_copies_no_history(self, place: Place, store: Backend, weigh: Weigh | None) -> None:
        """h. Ten forks together take less than the history that each of them begins with."""
        if place.lacks("shares_prefixes"):
            return
        if weigh is None:
            return place.exempt("weigh", "nothing says how many bytes the place takes")
        events = marks(0, 20_000)
        write(store, events)
        before = weigh()
        for number in range(10):
            fork(store, "s", 20_000, f"child{number}", 1)
        assert weigh() - before < sum(len(one.data) for one in events)

    # --- deleting ----------------------------------------------------------------------------------

    def test_a_deleted_session_is_gone(self, place: Place, store: Backend) -> None:
        """o. From every listing and lookup; its id is free for another one, also elsewhere."""
        write(store, turn())
        write(store, marks(0, 2), "kept")
        store.delete("s")
        for reader in (store, place.open()):
            assert_missing(reader, "s")
            assert ids(reader) == ["kept"]
        with closing(store.create(header_of(cwd="/elsewhere"), START)) as writer:
            writer.append(marks(0, 1))
        assert log(place.open()) == marks(0, 1)

    def test_a_session_that_is_written_is_not_deleted(self, place: Place, store: Backend) -> None:
        """o. Not even by its own process, and the writer goes on."""
        writer = begun(store, turn())
        for other in (store, place.open()):
            with pytest.raises(SessionBusyError):
                other.delete("s")
        writer.append(marks(6, 7))
        writer.close()
        store.delete("s")
        assert list(store.list()) == []

    # --- interrupted turns -------------------------------------------------------------------------

    def test_an_interrupted_turn_is_closed_by_repair_alone(self, place: Place, store: Backend) -> None:
        """3. Reading and opening show it as it is; repair appends the closers and changes the revision."""
        stored_events = [*turn(), *open_turn(6, 2)]
        write(store, stored_events)
        before = store.revision("s")
        stored, writer = store.open("s")
        assert (list(stored.events), store.revision("s")) == (stored_events, before)
        closing_events = closers(stored.events)
        assert writer.repair(closing_events) is None
        assert writer.next_seq == 11
        assert store.revision("s") != before
        writer.append(marks(11, 13))
        writer.close()
        assert log(place.open()) == [*stored_events, *closing_events, *marks(11, 13)]

    @pytest.mark.parametrize(
        ("recorded", "code"), [(False, "TOOL_NOT_STARTED"), (True, "TOOL_OUTCOME_UNKNOWN")]
    )
    def test_an_interrupted_call_is_answered_by_repair(
        self, store: Backend, recorded: bool, code: str
    ) -> None:
        """4 and 5. A tool result before the ends of step and turn says what is known of the call."""
        call = {"type": "tool-call", "id": "c", "name": "t", "arguments": "{}"}
        asked = event("assistant/message", 3, answer_data(1, [call]), surface_op="append")
        started = event("tool/call", 4, {"turn": 1, "step": 1, "callId": "c", "name": "t", "arguments": "{}"})
        write(store, [*open_turn(), asked, *([started] if recorded else [])])
        stored, writer = store.open("s")
        writer.repair(closers(stored.events))
        writer.close()
        result, *ends = log(store)[len(stored.events) :]
        assert types([result, *ends]) == ["tool/result", "step/end", "turn/end"]
        assert result.value["error"]["code"] == code
        assert result.value["message"]["source"] == {"kind": "tool", "callId": "c"}
        assert ends[1].value["reason"] == {"kind": "interrupted"}

    # --- torn tails --------------------------------------------------------------------------------

    @pytest.mark.parametrize("by", ["repair", "append"])
    def test_a_torn_tail_is_cut_and_kept(
        self, place: Place, store: Backend, tear: ToSession | None, by: str
    ) -> None:
        """a. Readers show what is whole and leave the rest; the writer cuts it with its first events."""
        if tear is None:
            return place.exempt("tear", "nothing tears the last event of a session")
        whole = self._torn(store, tear)
        before = store.revision("s")
        for reader in (store, place.open()):
            stored = reader.read("s")
            assert list(stored.events) == whole
            assert stored.torn
            assert (stored.torn.seq, stored.torn.size > 0, stored.torn.kept_at) == (9, True, None)
            assert list(reader.read_from("s", 8).events) == whole[8:]
            assert list(reader.read_from("s", 9).events) == []
            assert [(one.session_id, one.error) for one in reader.list()] == [("s", None)]
        assert store.revision("s") == before
        stored, writer = store.open("s")
        assert (list(stored.events), writer.next_seq) == (whole, 9)
        more = closers(stored.events)
        if by == "append":
            writer.append(more)
        else:
            cut = writer.repair(more)
            assert cut
            assert (cut.seq, cut.reason) == (9, cut.reason)
            assert cut.kept_at
        assert store.revision("s") != before
        writer.append(marks(9 + len(more), 20))
        writer.close()
        after = place.open().read("s")
        assert (list(after.events), after.torn) == ([*whole, *more, *marks(9 + len(more), 20)], None)

    def test_a_torn_tail_is_cut_without_closers(
        self, place: Place, store: Backend, tear: ToSession | None
    ) -> None:
        """a. Repair with no events cuts, says so once, and counts as a change."""
        if tear is None:
            return place.exempt("tear", "nothing tears the last event of a session")
        whole = self._torn(store, tear)
        before = store.revision("s")
        _, writer = store.open("s")
        assert writer.repair([])
        assert writer.repair([]) is None
        writer.close()
        assert store.read("s").torn is None
        assert (log(store), store.revision("s") != before) == (whole, True)

    def test_a_fork_takes_nothing_of_a_torn_tail(
        self, place: Place, store: Backend, tear: ToSession | None
    ) -> None:
        """a and h. What is whole can be forked, and the lost event is not counted."""
        if tear is None:
            return place.exempt("tear", "nothing tears the last event of a session")
        whole = self._torn(store, tear)
        with pytest.raises(BatchRefusedError):
            forked(store, "s", 10, "child")
        own = fork(store, "s", 9, "child")
        assert log(store, "child") == [*whole, *own]
        assert store.read("child").torn is None

    def _torn(self, store: Backend, tear: ToSession) -> list[Event]:
        """Store a session whose tenth event, the last of an open turn, is torn; return the whole ones."""
        whole = [*turn(), *open_turn(6, 2)]
        write(store, whole)
        add(store, [event("step/end", 9, {"turn": 2, "step": 1})])
        tear("s")
        return whole

    # --- damage ------------------------------------------------------------------------------------

    def test_a_damaged_session_hides_no_other(
        self, place: Place, store: Backend, damage: ToSession | None
    ) -> None:
        """h. It is listed with its error, refused, never overwritten, and its forks read on."""
        if damage is None:
            return place.exempt("damage", "nothing damages the header of a session")
        write(store, turn(), "damaged")
        own = fork(store, "damaged", 5, "child")
        write(store, turn(), "sound")
        damage("damaged")
        reader = place.open()
        errors = {one.session_id: one.error for one in reader.list()}
        assert (errors.pop("child"), errors.pop("sound")) == (None, None)
        [error] = errors.values()
        assert isinstance(error, ArtifactError)
        for _ in range(2):
            for use in uses(reader, "damaged")[:2] + uses(reader, "damaged")[4:5]:
                with pytest.raises(ArtifactError):
                    use()
        with pytest.raises(SessionExistsError):
            created(reader, "damaged")
        assert log(reader, "child") == [*turn()[:5], *own]
        assert log(reader, "sound") == turn()

    @pytest.mark.parametrize("by", ["read", "open", "read_from"])
    def test_a_required_unknown_type_is_refused_by_name(self, store: Backend, by: str) -> None:
        """p. As a format that another build reads; in a listing, which reads no event, nothing is wrong."""
        write(store, [*turn(), event("new/thing", 6, None), *marks(7, 9)])
        use: dict[str, Callable[[], object]] = {
            "read": lambda: store.read("s"),
            "open": lambda: store.open("s"),
            "read_from": lambda: store.read_from("s", 3),
        }
        with pytest.raises(SessionFormatUnsupportedError, match=r"new/thing.*not marked ignorable") as caught:
            use[by]()
        assert caught.value.seq == 6
        assert [one.error for one in store.list()] == [None]
        assert list(store.read_from("s", 7).events) == marks(7, 9)

    def test_an_ignorable_unknown_type_is_kept(self, store: Backend) -> None:
        """p. With whatever it carries."""
        events = [event("new/thing", 0, None, ignorable=True), *marks(1, 3)]
        write(store, events)
        assert log(store) == events

    def test_a_retired_shape_is_corruption(self, store: Backend) -> None:
        """p. Also where it is marked ignorable."""
        write(store, [*turn(), event("mode/set", 6, {}, ignorable=True)])
        with pytest.raises(SessionPersistenceCorruptionError, match="mode/set") as caught:
            store.read("s")
        assert caught.value.seq == 6

    def test_a_cut_beyond_the_log_is_corruption(self, store: Backend) -> None:
        """p. It is taken at creation, since the events are still to come, and refused when they are read."""
        writer = store.create(header_of(is_seeded=True), SessionLogOffset(7))
        writer.append(turn())
        with pytest.raises(SessionPersistenceCorruptionError):
            store.read("s")
        writer.append(marks(6, 7))
        assert store.read("s").inherited_event_count == 7

    # --- capabilities ------------------------------------------------------------------------------

    def test_what_is_missing_has_a_reason(self, store: Backend) -> None:
        """q. The reasons stand for exactly the capabilities that are missing."""
        capabilities = structs.asdict(store.capabilities)
        reasons = capabilities.pop("reasons")
        assert set(reasons) == {name for name, given in capabilities.items() if not given}
        assert all(reasons.values())
        assert store.name

    def test_a_session_has_a_place(self, place: Place, store: Backend) -> None:
        """q. The same before and after it is stored, and another one for each session."""
        if place.lacks("locates"):
            assert store.locate(header_of()) is None
            return
        headers = [header_of(), header_of("t"), header_of("u", cwd="/w")]
        places = [store.locate(header) for header in headers]
        assert len(set(places) - {None}) == 3
        assert list(store.list()) == []
        for header in headers:
            with closing(store.create(header, START)) as writer:
                writer.append(turn())
        assert [place.open().locate(header) for header in headers] == places
        assert sorted(one.place for one in store.list()) == sorted(map(str, places))

    def test_a_session_has_a_text(self, place: Place, store: Backend) -> None:
        """q. Its header and every event that is stored, line by line."""
        if place.lacks("raw_artifacts"):
            write(store, turn())
            with pytest.raises(UnsupportedOperationError, match=store.capabilities.reasons["raw_artifacts"]):
                store.raw("s")
            return
        with pytest.raises(SessionNotFoundError):
            store.raw("s")
        header = header_of(is_seeded=True, cwd="/w", parent_session="p", delegation_depth=1)
        events = [*turn(), *deltas(6, 20), *ENVELOPES[6:7]]
        events[-1] = structs.replace(events[-1], seq=20)
        with closing(store.create(header, SessionLogOffset(3))) as writer:
            writer.append(events[:8])
            writer.append(events[8:])
            raw = store.raw("s")
        assert (_same(raw.header, header), raw.inherited_event_count) == (True, 3)
        assert raw.filename == "session.jsonl"
        first, *lines = raw.content.removesuffix(b"\n").split(b"\n")
        assert from_header_line(first) == (raw.header, 3)
        rows = map(read_row, lines)
        expanded = [one for row in rows for one in (row.expand() if isinstance(row, PackedRow) else [row])]
        assert expanded == events


def _same(found: SessionHeader, header: SessionHeader) -> bool:
    """Compare headers; an absent depth and 0 are the same."""
    return structs.replace(found, delegation_depth=found.depth) == structs.replace(
        header, delegation_depth=header.depth
    )


def _oddity(one: Event) -> tuple[object, ...]:
    """What a failed comparison of odd events shows: not 300,000 characters of one."""
    return one.seq, one.type, one.time, bytes(one.data)[:80], len(one.data), hash(bytes(one.data))
