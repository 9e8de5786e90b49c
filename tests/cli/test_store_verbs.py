"""`ls` and `tail` on stores that live sessions left."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Raw

from seedline.events.event import Event
from seedline.session.header import START, SessionHeader
from seedline.storage.open import open_store
from tests.cli.commands import Commands


@pytest.fixture(params=["jsonl:{}/runs", "jsonl:{}/runs?encoding=zstd", "sqlite:{}/runs.db"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.param.format(tmp_path)


def store(url: str, session_id: str, created_at: int, *titles: str) -> None:
    backend = open_store(url)
    writer = backend.create(SessionHeader(id=session_id, created_at=created_at, cwd="/w"), START)
    data = [
        b'{"title":"%b","messageSeqs":[],"source":{"kind":"fallback"}}' % title.encode() for title in titles
    ]
    writer.append([Event("session/title", seq, seq, Raw(each)) for seq, each in enumerate(data)])
    backend.close()


def test_sessions_are_listed_the_newest_first_with_their_latest_title(seedline: Commands, url: str) -> None:
    store(url, "old", 1000, "first", "second")
    store(url, "new", 2000, "only")
    document = seedline.json("ls", "--store", url)
    assert [(one["id"], one["title"]) for one in document["sessions"]] == [("new", "only"), ("old", "second")]
    assert document["more"] == 0
    limited = seedline.json("ls", "-n", "1", "--store", url)
    assert ([one["id"] for one in limited["sessions"]], limited["more"]) == (["new"], 1)
    shown = seedline("ls", "--store", url)
    assert "second" in shown.out


def test_an_empty_store_has_no_sessions_and_stays_unmade(
    seedline: Commands, url: str, tmp_path: Path
) -> None:
    assert seedline.json("ls", "--store", url) == {"sessions": [], "more": 0}
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_session_is_marked_and_hides_no_other(seedline: Commands, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}/runs"
    for name in ("a", "b", "c"):
        store(url, name, 1000, "fine")
    (tmp_path / "runs" / "--w--" / "b" / "session.jsonl").write_bytes(b"\0\0\0\n")
    ran = seedline("ls", "--json", "--store", url)
    assert ran.code == 5
    found = {one["place"].split("/")[-2]: one["error"] for one in ran.document["sessions"]}
    assert found["a"] is None
    assert found["b"]["kind"] == "not-a-session"
    assert found["c"] is None


def test_the_last_events_of_a_stored_session(seedline: Commands, url: str) -> None:
    store(url, "s", 1000, *map(str, range(30)))
    document = seedline.json("tail", "s", "-n", "2", "--store", url)
    assert [(event["seq"], event["data"]["title"]) for event in document["events"]] == [
        (28, "28"),
        (29, "29"),
    ]
    missing = seedline("tail", "nobody", "--json", "--store", url)
    assert (missing.code, missing.document["error"]["kind"]) == (5, "not-found")


def test_the_last_events_of_a_file(seedline: Commands, tmp_path: Path) -> None:
    store(f"jsonl:{tmp_path}/runs", "s", 1000, "t")
    file = tmp_path / "runs" / "--w--" / "s" / "session.jsonl"
    document = seedline.json("tail", file)
    assert (document["id"], [event["seq"] for event in document["events"]]) == ("s", [0])
