"""A place to run tool calls without an agent."""

from __future__ import annotations

from typing import Any

from seedline.clock import ManualClock
from seedline.ids import SeededIds
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.tools.base import Call, CallContext, Signal
from seedline.tools.schedule import StepPlace


def new_place() -> StepPlace:
    """An open step of a fresh session."""
    session = Session.create(
        SessionHeader(id="s", created_at=0), clock=ManualClock(), inherited_event_count=START
    )
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    return StepPlace(session, None, 1, 1, Signal(), SeededIds())


def calls(*names: str) -> list[Call]:
    """Calls of these tools; each id is the name and the position, such as `p0`."""
    return [Call(position, f"{name}{position}", name, "{}") for position, name in enumerate(names)]


def context(name: str = "t", arguments: str = "{}", place: StepPlace | None = None) -> CallContext:
    place = place or new_place()
    return CallContext(place.session, place.owner, 1, 1, Call(0, "c", name, arguments), place.signal)


def rows(session: Session) -> list[str]:
    """The calls and results of a log in short: `call p0`, `p0`, `p0 !CODE`."""
    lines: list[str] = []
    for event in session.events:
        data: Any = event.value
        if event.type == "tool/call":
            lines.append(f"call {data['callId']}")
        elif event.type == "tool/result":
            block = data["message"]["content"][0]
            code = data.get("error", {}).get("code") or ("error" if block["isError"] else "")
            lines.append(f"{block['toolCallId']} !{code}" if code else block["toolCallId"])
    return lines


def text_in(outcome: Any) -> str:
    [block] = outcome.content
    return block["text"]
