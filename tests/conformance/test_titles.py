"""Every recorded fallback title follows from the messages before it."""

from __future__ import annotations

from typing import Any

import pytest

from seedline.agent.title import fallback_title, shorten
from seedline.clock import ManualClock
from seedline.session.header import SessionLogOffset
from seedline.session.log import Session
from tests.conformance.corpus import recorded, recorded_log


@pytest.mark.parametrize("entry", recorded("current"))
def test_the_recorded_title_is_derived(entry: Any) -> None:
    header, cut, events = recorded_log(entry)
    titles = [event for event in events.without_chunks() if event.type == "session/title"]
    for title in titles:
        if title.value["source"]["kind"] != "fallback":
            continue
        before = Session.restore(
            header,
            clock=ManualClock(),
            inherited_event_count=SessionLogOffset(min(cut, title.seq)),
            events=events[: title.seq],
        )
        assert fallback_title(before) == title.value


def test_titles_of_every_recorded_shape_follow_from_their_text() -> None:
    seen = 0
    for parameter in recorded():
        _, _, events = recorded_log(parameter.values[0])
        messages: dict[int, Any] = {}
        for event in events.without_chunks():
            if event.type == "user/message":
                messages[event.seq] = event.value
            elif event.type == "session/title" and event.value["source"]["kind"] == "fallback":
                [seq] = event.value["messageSeqs"]
                texts = [block["text"] for block in messages[seq]["content"] if block["type"] == "text"]
                assert shorten(" ".join(texts)) == event.value["title"]
                seen += 1
    assert seen == 81
