"""The surface fold against a naive model: plain lists, each rule written out as the format states it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import event as label
from hypothesis import given
from hypothesis import strategies as st

from seedline.clock import ManualClock
from seedline.errors import SurfaceRefusedError
from seedline.session.header import START, SessionHeader
from seedline.session.log import Session
from seedline.session.surface import fold_surface
from tests.unit.session.make import new_session

ELIGIBLE = ("user/message", "assistant/message", "tool/result")


@dataclass
class Model:
    """A log as (type, data, marker, sources) rows, and the surface they make."""

    rows: list[tuple[str, Any]] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    replacements: list[tuple[int, int, int, tuple[int, ...]]] = field(default_factory=list)

    def refusal(self, event_type: str, data: Any, marker: Any, sources: list[int] | None) -> str | None:
        seq = len(self.rows)
        if event_type not in ELIGIBLE:
            return "not-eligible" if marker is not None or sources is not None else None
        if marker is None:
            return "marker-missing"
        if sources is not None:
            if sources == [] and event_type != "assistant/message":
                return "sources-empty"
            if any(sources.count(one) > 1 for one in sources):
                return "sources-duplicate"
            if any(one >= seq for one in sources):
                return "sources-not-earlier"
        return None if marker == "append" else self.replace_refusal(event_type, data, marker, sources)

    def replace_refusal(
        self, event_type: str, data: Any, marker: Any, sources: list[int] | None
    ) -> str | None:
        if marker["start"] not in self.nodes:
            return "start-missing"
        if marker["end"] not in self.nodes:
            return "end-missing"
        hidden = self.hidden(marker)
        if not hidden:
            return "start-after-end"
        if any(seq not in (sources or []) for seq in hidden):
            return "shadowed-not-cited"
        if event_type != "tool/result":
            return None
        if len(hidden) > 1:
            return "tool-rewrite-several"
        old_type, old = self.rows[hidden[0]]
        if old_type != "tool/result":
            return "tool-rewrite-other-type"
        names = ("call", "turn", "is_error")
        same = all(data[name] == old[name] for name in names)
        return None if same else "tool-rewrite-beyond-content"

    def hidden(self, marker: Any) -> list[int]:
        found: list[int] = []
        inside = False
        for node in self.nodes:
            inside = inside or node == marker["start"]
            if inside:
                found.append(node)
            if node == marker["end"]:
                return found if inside else []
        return []

    def take(self, event_type: str, data: Any, marker: Any) -> None:
        seq = len(self.rows)
        self.rows.append((event_type, data))
        if event_type not in ELIGIBLE:
            return
        if marker == "append":
            self.nodes.append(seq)
            return
        hidden = self.hidden(marker)
        self.replacements.append((seq, marker["start"], marker["end"], tuple(hidden)))
        kept: list[int] = []
        for node in self.nodes:
            if node == hidden[0]:
                kept.append(seq)
            if node not in hidden:
                kept.append(node)
        self.nodes = kept

    def messages(self) -> list[tuple[int, str]]:
        return [
            (node, self.rows[node][1]["text"])
            for node in self.nodes
            if not (self.rows[node][0] == "assistant/message" and self.rows[node][1]["empty"])
        ]


def payload(event_type: str, data: Any) -> Any:
    """The wire payload of what the model calls `data`."""
    text = [{"type": "text", "text": data["text"]}]
    if event_type == "user/message":
        return {"id": "u", "role": "user", "content": text, "source": {"kind": "user"}}
    if event_type == "assistant/message":
        source = {"kind": "model", "provider": "p", "model": "m"}
        content: list[Any] = [] if data["empty"] else text
        message: dict[str, Any] = {"id": "a", "role": "assistant", "content": content, "source": source}
        return {"turn": data["turn"], "step": 1, "message": message}
    if event_type == "tool/result":
        block = {
            "type": "tool-result",
            "toolCallId": data["call"],
            "content": text,
            "isError": data["is_error"],
        }
        source = {"kind": "tool", "callId": data["call"]}
        message = {"id": "r", "role": "user", "content": [block], "source": source}
        return {"turn": data["turn"], "step": 1, "message": message}
    return {"text": data["text"]}


def text_of(value: Any) -> str:
    block = value["content"][0]
    return block["content"][0]["text"] if block["type"] == "tool-result" else block["text"]


PLACES = st.integers(0, 30)
ACTIONS = st.fixed_dictionaries(
    {
        "event_type": st.sampled_from([*ELIGIBLE, *ELIGIBLE, "plugin/note"]),
        "kind": st.sampled_from(["append"] * 5 + ["replace"] * 3 + ["replace-result"] * 3 + ["none"]),
        "start": PLACES,
        "end": PLACES,
        "outside": st.sampled_from([False] * 9 + [True]),
        "cite": st.sampled_from(["exact"] * 8 + ["more", "more", "some", "free", "absent", "empty", "twice"]),
        "free": st.lists(st.integers(0, 12), max_size=4),
        "data": st.fixed_dictionaries(
            {
                "text": st.sampled_from(["x", "y", ""]),
                "empty": st.booleans(),
                "call": st.sampled_from(["c", "d"]),
                "turn": st.sampled_from([1, 1, 1, 2]),
                "is_error": st.booleans(),
            }
        ),
    }
)


def marker_of(model: Model, action: dict[str, Any]) -> Any:
    """A marker that mostly names nodes of the surface, by their place."""
    if action["kind"] in ("append", "none"):
        return {"append": "append", "none": None}[action["kind"]]
    if action["outside"] or not model.nodes:
        return {"op": "replace", "start": action["start"], "end": action["end"]}
    start = model.nodes[action["start"] % len(model.nodes)]
    end = start if action["kind"] == "replace-result" else model.nodes[action["end"] % len(model.nodes)]
    return {"op": "replace", "start": start, "end": end}


def sources_of(model: Model, action: dict[str, Any], marker: Any) -> list[int] | None:
    hidden = model.hidden(marker) if isinstance(marker, dict) else []
    exact = hidden or None
    match action["cite"]:
        case "exact":
            return exact
        case "more":
            return [*hidden, *(one for one in range(len(model.rows)) if one not in hidden)] or None
        case "some":
            return hidden[1:] or None
        case "twice":
            return [*hidden, *hidden[:1]] or None
        case "free":
            return action["free"]
        case "empty":
            return []
        case _:
            return None


OPENING: list[dict[str, Any]] = [
    {
        "event_type": event_type,
        "kind": "append" if event_type in ELIGIBLE else "none",
        "cite": "absent",
        "data": {"text": "x", "empty": False, "call": "c", "turn": 1, "is_error": False},
    }
    for event_type in (*ELIGIBLE, "plugin/note", "tool/result")
]


def play(actions: list[dict[str, Any]]) -> tuple[Session, Model]:
    session, model = new_session(), Model()
    for action in [*OPENING, *actions]:
        marker = marker_of(model, action)
        sources = sources_of(model, action, marker)
        event_type, data = action["event_type"], action["data"]
        arguments: dict[str, Any] = {} if marker is None else {"surface_op": marker}
        if sources is not None:
            arguments["source_event_seqs"] = sources
        expected = model.refusal(event_type, data, marker, sources)
        label(f"{expected or 'taken'}")
        try:
            session.append(event_type, payload(event_type, data), **arguments)
            refused = None
        except SurfaceRefusedError as error:
            refused = error.surface_code
        assert refused == expected
        if expected is None:
            model.take(event_type, data, marker)
        assert session.seq == len(model.rows)
        assert list(session.surface) == model.nodes
    return session, model


@given(st.lists(ACTIONS, max_size=25))
def test_appends_follow_the_model(actions: list[dict[str, Any]]) -> None:
    session, model = play(actions)
    derived = [(message.seq, text_of(message.value)) for message in session.derive_messages()]
    assert derived == model.messages()


@given(st.lists(ACTIONS, max_size=25), st.data())
def test_folds_of_any_prefix_agree(actions: list[dict[str, Any]], data: st.DataObject) -> None:
    session, model = play(actions)
    log = session.events
    whole = fold_surface(log, log.at_seq)
    assert (list(whole.nodes), list(whole.replacements)) == (model.nodes, model.replacements)
    stop = data.draw(st.integers(0, len(log)))
    prefix = fold_surface(log[:stop], log.at_seq)
    assert (prefix.nodes, prefix.replacements) == (whole.before(stop).nodes, whole.before(stop).replacements)
    seeded = SessionHeader(id="c", created_at=1, is_seeded=True)
    forked = session.fork(seeded, stop, ManualClock())
    assert forked.surface == prefix.nodes
    restored = Session.restore(
        SessionHeader(id="r", created_at=1), clock=ManualClock(), inherited_event_count=START, events=log
    )
    assert list(restored.surface) == model.nodes
    assert [m.data for m in restored.derive_messages()] == [m.data for m in session.derive_messages()]


@given(st.lists(ACTIONS, max_size=12), st.lists(ACTIONS, max_size=12))
def test_asking_for_messages_on_the_way_changes_nothing(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    asked, model = new_session(), Model()
    for action in [*first, *second]:
        marker = marker_of(model, action)
        sources = sources_of(model, action, marker)
        event_type, data = action["event_type"], action["data"]
        if model.refusal(event_type, data, marker, sources) is not None:
            continue
        arguments: dict[str, Any] = {} if marker is None else {"surface_op": marker}
        if sources is not None:
            arguments["source_event_seqs"] = sources
        asked.append(event_type, payload(event_type, data), **arguments)
        model.take(event_type, data, marker)
        assert [(m.seq, text_of(m.value)) for m in asked.derive_messages()] == model.messages()
