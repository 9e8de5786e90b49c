"""Every error: built from facts that its text names, ending with a next step, and drawn in the tree."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import pytest

from seedline import errors
from seedline.errors import (
    ArtifactError,
    JsonSyntaxError,
    JsonValueError,
    SeedlineError,
    SessionPersistenceCorruptionError,
    UnfinishedCallError,
    reason_of,
)

CLASSES: list[type[SeedlineError]] = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SeedlineError)
]

# --- examples, built from what each constructor asks for -------------------------------------------

EXAMPLES: dict[str, list[dict[str, Any]]] = {}
"""Arguments of constructors whose annotations do not say enough, by class name."""

KEPT_BESIDE: dict[str, frozenset[str]] = {
    "SurfaceRefusedError": frozenset({"missing"}),  # its text says them in `reason`
    "ModelFailureError": frozenset(
        {"status", "provider_retry_after_ms", "request_id"}
    ),  # fields of the log's record
}
"""Facts that a class, and its subclasses, carry as attributes only."""


def values_for(name: str, annotation: Any) -> list[Any]:
    """Distinct values of an annotation; every member of a Literal."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return list(args)
    if origin in (Union, types.UnionType):
        return [value for arg in args if arg is not types.NoneType for value in values_for(name, arg)][:1]
    if origin in (Sequence, list, tuple, typing.Sequence):
        return [tuple(values_for(f"{name}{k}", args[0])[0] for k in (1, 2))]
    if annotation in (str, object, Any):
        return [f"the-{name}"]
    if annotation in (int, float):
        return [7000 + sum(map(ord, name)) % 997]
    if annotation is bool:
        return [True, False]
    raise AssertionError(f"no value for {name}: {annotation}; write the arguments into EXAMPLES")


def examples(kind: type[SeedlineError]) -> list[dict[str, Any]]:
    """Arguments that build the class: one set per word of its code, and one without optional facts."""
    if kind.__name__ in EXAMPLES:
        return EXAMPLES[kind.__name__]
    hints = typing.get_type_hints(kind.__init__)
    parameters = [p for p in inspect.signature(kind).parameters.values() if p.kind is not p.VAR_KEYWORD]
    choices = {p.name: values_for(p.name, hints[p.name]) for p in parameters}
    full = [
        {name: values[turn % len(values)] for name, values in choices.items()}
        for turn in range(max(map(len, choices.values()), default=1))
    ]
    required = {p.name for p in parameters if p.default is p.empty}
    return [*full, {name: value for name, value in full[0].items() if name in required}]


def is_a_branch(kind: type[SeedlineError]) -> bool:
    """A class that only groups others takes no facts, so it is not raised itself."""
    return kind.__init__ is Exception.__init__


def cases() -> Iterator[tuple[type[SeedlineError], dict[str, Any]]]:
    for kind in CLASSES:
        if not is_a_branch(kind):
            yield from ((kind, arguments) for arguments in examples(kind))


def build(kind: type[SeedlineError], arguments: dict[str, Any]) -> SeedlineError:
    """By keyword where that can be, by position for the facts that have no other way in."""
    parameters = inspect.signature(kind).parameters
    positional = [arguments[p.name] for p in parameters.values() if p.name in arguments and p.kind in PLACED]
    return kind(
        *positional, **{name: v for name, v in arguments.items() if parameters[name].kind not in PLACED}
    )


PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
CASES = list(cases())
IDS = [f"{kind.__name__}-{number}" for number, (kind, _) in enumerate(CASES)]


MESSAGES = [
    case for case in zip(CASES, IDS, strict=True) if case[0][0].__name__ not in {"ReplayDivergedError"}
]
"""All but the one whose text is a report for people, written where the comparison is made."""
of_each_message = pytest.mark.parametrize(
    ("kind", "arguments"), [case for case, _ in MESSAGES], ids=[name for _, name in MESSAGES]
)

# --- what a message promises ---------------------------------------------------------------------

NEXT_STEP = re.compile(
    "(?:Add|Answer|Append|Ask|Call|Check|Choose|Close|Correct|Create|Declare|Do|End|Fork|Give|Install|Leave|Let|List|Look|Make"
    "|Move|Name|Open|Pass|Put|Raise|Read|Record|Register|Remove|Repair|Replay|Resume|Rewrite|Run|See|Send|Set|Shorten"
    "|Start|Stop|Take|Update|Use|Wait|Write)\\b",
    re.IGNORECASE,
)
"""The verbs a next step begins with."""
ASSURANCES = ("The log is unchanged.",)
"""Sentences that may follow the next step."""


def last_sentence(text: str) -> str:
    for assurance in ASSURANCES:
        text = text.removesuffix(assurance).rstrip()
    return re.split(r"(?<=[.!?…)`'\"]) (?=[A-Z])", text)[-1]


@of_each_message
def test_a_message_ends_with_the_next_step(kind: type[SeedlineError], arguments: dict[str, Any]) -> None:
    text = str(build(kind, arguments))
    step = last_sentence(text)
    assert step.endswith("."), text
    assert any(map(NEXT_STEP.match, step.split("; "))), f"no next step: {step!r}"
    assert step != text, "what happened comes first"


@pytest.mark.parametrize(("kind", "arguments"), CASES, ids=IDS)
def test_a_message_names_its_facts(kind: type[SeedlineError], arguments: dict[str, Any]) -> None:
    error = build(kind, arguments)
    text = str(error)
    beside = {name for base in kind.__mro__ for name in KEPT_BESIDE.get(base.__name__, ())}
    for name, value in arguments.items():
        if name not in beside and not isinstance(value, bool):
            parts = value if isinstance(value, tuple) else (value,)
            assert all(str(part) in text for part in parts), f"{name} {value!r} is not in {text!r}"


@of_each_message
def test_a_message_is_one_line_of_plain_prose(kind: type[SeedlineError], arguments: dict[str, Any]) -> None:
    text = str(build(kind, arguments))
    assert "\n" not in text
    assert "None" not in text.replace("Pass only None, bool", "")
    assert not re.search(r"(?<!\.)\.\.(?!\.)", text)
    assert "  " not in text
    assert text.isprintable()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_says_what_it_is_and_has_a_word_for_it(kind: type[SeedlineError]) -> None:
    assert kind.__doc__, "a docstring of its own"
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.kind)


def test_the_words_of_artifacts_are_those_of_the_command_line() -> None:
    kinds = {kind.kind for kind in CLASSES if issubclass(kind, ArtifactError)} | {UnfinishedCallError.kind}
    assert kinds >= {
        "not-found",
        "not-a-session",
        "format-unsupported",
        "corrupt",
        "identity-mismatch",
        "layout-mismatch",
        "too-large",
        "unfinished-call",
    }


# --- the tree ------------------------------------------------------------------------------------

DRAWN = re.compile(r"(?P<branch>[ │]*(?:[├└]── )?)(?P<name>[A-Z]\w*)(?:  .*)?")


def drawn_parents(drawing: str) -> dict[str, str]:
    """Class name to the name it hangs from, as the docstring of the module draws it."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        found = DRAWN.fullmatch(line)
        if found:
            depth = (len(found["branch"]) - 4) // 4
            path[depth:] = [found["name"]]
            parents[found["name"]] = path[depth - 1] if depth else ""
    return parents


def test_the_drawing_is_the_tree() -> None:
    drawn = drawn_parents(errors.__doc__ or "")
    real = {kind.__name__: kind.__mro__[1].__name__ for kind in CLASSES if kind is not SeedlineError}
    assert drawn == {"SeedlineError": ""} | real


def test_drawings_are_read_as_they_look() -> None:
    drawing = """
    Root
    ├── A      words
    │   ├── B
    │   │   └── C
    │   └── D
    └── E
        └── F  words (code)
    """
    assert drawn_parents(drawing) == {
        "Root": "",
        "A": "Root",
        "B": "A",
        "C": "B",
        "D": "A",
        "E": "Root",
        "F": "E",
    }


# --- facts -------------------------------------------------------------------------------------------


def test_a_place_is_written_in_front() -> None:
    error = ArtifactError("it is torn", path="/a/b.jsonl", line=3, offset=200, seq=1)
    assert str(error).startswith("/a/b.jsonl: line 3, seq 1, byte 200: it is torn. ")
    assert str(ArtifactError("it is torn", seq=0)).startswith("seq 0: it is torn. ")
    assert str(ArtifactError("it is torn")).startswith("it is torn. ")


def test_locating_fills_in_only_what_is_missing() -> None:
    error = SessionPersistenceCorruptionError("bad", seq=0, line=5)
    found = error.located(path="p", line=9, offset=0, seq=3)
    assert type(found) is SessionPersistenceCorruptionError
    assert (found.reason, found.path, found.line, found.offset, found.seq) == ("bad", "p", 5, 0, 0)
    assert (error.path, error.offset) == (None, None), "the error itself stays as it is"
    assert str(found.located()) == str(found)


def test_an_unfinished_call_is_located_by_its_file() -> None:
    error = UnfinishedCallError(2, 1)
    assert str(error.located("a.jsonl")).startswith("a.jsonl: the model call in turn 2, step 1 ")
    assert error.located("a.jsonl").located("b.jsonl").path == "a.jsonl"


def test_the_reason_of_an_error_leaves_the_next_step_out() -> None:
    assert reason_of(JsonSyntaxError("a comma is missing")) == "a comma is missing"
    assert reason_of(JsonValueError("minus zero", "/a")) == "minus zero"
    assert reason_of(ValueError("text")) == "text"
