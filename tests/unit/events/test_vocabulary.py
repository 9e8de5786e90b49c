"""The 48 event types: their names, their wire fields, and that each class says what it is for."""

from __future__ import annotations

import pytest
from msgspec import inspect

from seedline.events.messages import Record
from seedline.events.vocabulary import (
    KNOWN_TYPES,
    PAYLOADS,
    RETIRED_TYPES,
    SURFACE_TYPES,
    TYPE_OF,
    TurnStart,
    is_surface_eligible_type,
)

# Sections 1.4 to 1.6 of the format, written down from there: mandatory fields, then optional ones.
FIELDS: dict[str, tuple[str, str]] = {
    "turn/start": ("turn", ""),
    "turn/end": ("turn reason", ""),
    "step/start": ("turn step", ""),
    "step/end": ("turn step", ""),
    "user/message": ("id role content source", ""),
    "assistant/chunk": ("turn step chunk", ""),
    "assistant/message": ("turn step message", "usage interrupted"),
    "tool/call": ("turn step callId name arguments", ""),
    "tool/result": ("turn step message", "error meta"),
    "todo/write": ("todos", ""),
    "request/header": ("header reason", ""),
    "request/context": ("provider model", "contextWindow"),
    "session/end-seed": ("", ""),
    "agent/inbox/spliced": ("target start inserted", "removedCount outcome"),
    "agent-preset/selected": ("agentPreset", ""),
    "approval/asked": ("id toolName", "callId reason"),
    "approval/decided": ("id outcome", ""),
    "approval/policy": ("policy", "source"),
    "command/run": ("commandId name source", "args"),
    "command/done": ("commandId kind", "text sourceEventSeq"),
    "compaction/start": ("compactionId turn", "sourceCommandId"),
    "compaction/summary": (
        "compactionId summary shadowedRange shadowedSeqs shadowedTokenCount provider model",
        "sourceCommandId maxTokens usage rawOutput llmStreamCall",
    ),
    "compaction/end": ("compactionId turn", "sourceCommandId error"),
    "compaction/prune": ("shadowedRange shadowedSeqs shadowedTokenCount", ""),
    "feedback/record": ("text", ""),
    "goal/change": ("kind version operation", "goal roundsStarted createdAt updatedAt cleared clearedAt"),
    "hook/invoked": ("turn point dialect handlerId", "matcher"),
    "hook/result": ("turn point handlerId decision durationMs", "exitCode stderrSummary"),
    "llm/retry": ("retryId turn step provider mode policyKey retry delayMs failure", "maxRetries"),
    "llm/retry-started": ("retryId turn step retry", ""),
    "permission/preset": ("preset", ""),
    "plan/mode": ("active", ""),
    "sandbox/mode": ("mode", "source"),
    "schedule/change": ("version operation", "schedule id acceptedAt"),
    "session/title": ("title messageSeqs source", ""),
    "session/title-llm-request": ("titleProvider messageSeqs route system messages maxTokens", ""),
    "subagent/descriptor": ("version mode provider", "label agentProvider agentModel persona toolFilter"),
    "team/member": ("version teamId member", ""),
    "team/task": ("version teamId task", ""),
    "team/message/queued": ("version teamId message", ""),
    "team/message/delivered": ("version teamId messageId targetId", ""),
    "tool/code-dispatch-start": ("rootCallId parentCallId subCallId name arguments", ""),
    "tool/code-dispatch": ("rootCallId parentCallId subCallId name arguments isError content", ""),
    "tool-workflow/run-start": ("runId name", ""),
    "tool-workflow/agent-start": ("runId seq label childId", "phase"),
    "tool-workflow/agent-end": ("runId seq outcome", ""),
    "tool-workflow/run-end": ("runId stopReason", ""),
    "web/deepseek-search-llm-request": ("endpoint apiVersion body", ""),
}


def struct(kind: type[Record]) -> inspect.StructType:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info


def test_there_are_48_types() -> None:
    assert len(FIELDS) == 48
    assert set(PAYLOADS) == KNOWN_TYPES == set(FIELDS)


@pytest.mark.parametrize(("name", "fields"), FIELDS.items(), ids=FIELDS)
def test_a_class_has_the_fields_of_the_format(name: str, fields: tuple[str, str]) -> None:
    mandatory, optional = (set(text.split()) for text in fields)
    found = struct(PAYLOADS[name]).fields
    assert {field.encode_name for field in found if field.required} == mandatory
    assert {field.encode_name for field in found if not field.required} == optional
    assert all(field.default is None for field in found if not field.required), "absent reads as None"


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_class_is_named_after_its_type_and_says_what_it_is_for(name: str) -> None:
    kind = PAYLOADS[name]
    assert kind.__name__.lower() == "".join(c for c in name if c.isalpha())
    assert kind.__doc__
    assert kind.__doc__.strip().endswith(".")


def test_classes_and_names_answer_each_other() -> None:
    assert {TYPE_OF[kind]: kind for kind in TYPE_OF} == PAYLOADS
    assert len(set(PAYLOADS.values())) == 48


def test_payloads_are_frozen() -> None:
    with pytest.raises(AttributeError):
        TurnStart(1).turn = 2  # pyright: ignore[reportAttributeAccessIssue]  # what the test is about
    assert all(kind.__struct_config__.frozen for kind in PAYLOADS.values())


def test_surface_types() -> None:
    assert set(SURFACE_TYPES) == {"user/message", "assistant/message", "tool/result"}
    assert [name for name in sorted(FIELDS) if is_surface_eligible_type(name)] == sorted(SURFACE_TYPES)
    assert not is_surface_eligible_type("x/y")


def test_retired_types_are_not_known() -> None:
    assert set(RETIRED_TYPES) == {"request/header-delta", "mode/set"}
    assert not RETIRED_TYPES & KNOWN_TYPES
    assert "steering/message" not in KNOWN_TYPES
