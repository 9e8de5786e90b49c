"""Events, rows and header lines: written and read back byte for byte, whatever the payload."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw, inspect

from seedline.errors import JsonSyntaxError, SessionPersistenceCorruptionError
from seedline.events.codec import (
    RowError,
    canonical_event,
    encode_event,
    join_members,
    project_row,
    raw_members,
    read_row,
)
from seedline.events.event import Event, ReplaceOp
from seedline.events.messages import Block, OtherBlock, Record
from seedline.events.packing import PACKED_TYPES, PackedRow
from seedline.events.vocabulary import KNOWN_TYPES, PAYLOADS
from seedline.jsonvalue import canonical, canonical_text, decode, encode, encode_lossless, join_surrogates
from seedline.session.header import (
    CallSpawn,
    HostPlace,
    HostSpawn,
    SessionHeader,
    SessionLogOffset,
    from_header_line,
    to_header_line,
)
from tests.conftest import SWEEP
from tests.properties.json_texts import SAFE, blanks, damaged, json_texts, json_values, texts, whole_texts

# --- texts ---------------------------------------------------------------------------------------


@given(json_texts)
def test_decode_agrees_with_the_standard_library(text: str) -> None:
    assert same(decode(text), json.loads(text))
    assert same(decode(text.encode()), json.loads(text))


def same(ours: Any, theirs: Any) -> bool:
    """Equal values in equal order, a whole float within the safe range being an int of ours."""
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    whole = isinstance(theirs, float) and theirs.is_integer() and abs(theirs) <= SAFE
    return ours == theirs and type(ours) is (int if whole else type(theirs))


@given(json_texts)
def test_the_quick_canonical_form_is_the_canonical_form(text: str) -> None:
    found = canonical_text(text.encode())
    assert found == canonical(decode(text))
    assert canonical_text(found) == found


@given(damaged())
def test_the_quick_way_refuses_exactly_what_decode_refuses(data: bytes) -> None:
    try:
        value = decode(data)
    except JsonSyntaxError:
        with pytest.raises(JsonSyntaxError):
            canonical_text(data)
    else:
        assert canonical_text(data) == canonical(value)


@given(json_values)
def test_lossless_values_come_back_equal(value: Any) -> None:
    data = encode_lossless(value)
    assert data == encode(value)
    assert encode(decode(data)) == data
    assert data.decode().encode() == data, "the wire form is UTF-8"
    assert b"\n" not in data


# --- events --------------------------------------------------------------------------------------

safe_counts = st.integers(0, SAFE) | st.integers(0, 100)
safe_integers = st.integers(-SAFE, SAFE)
surface_ops = st.just("append") | st.builds(ReplaceOp, st.just("replace"), safe_counts, safe_counts)


def events(types: st.SearchStrategy[str], payloads: st.SearchStrategy[bytes]) -> st.SearchStrategy[Event]:
    return st.builds(
        Event,
        types.filter(lambda name: name not in PACKED_TYPES),
        safe_counts,
        safe_integers,
        payloads.map(Raw),
        st.just(UNSET) | st.lists(safe_counts, max_size=3).map(tuple),
        st.just(UNSET) | surface_ops,
        st.just(UNSET) | st.just(True),
    )


def reread(event: Event) -> Event:
    found = read_row(encode_event(event))
    assert isinstance(found, Event)
    return found


@given(events(whole_texts, json_values.map(encode)))
def test_any_event_comes_back_equal(event: Event) -> None:
    line = encode_event(event)
    assert reread(event) == event
    assert encode_event(reread(event)) == line
    assert canonical_event(event) == canonical(decode(line))


@given(events(st.just("x/y"), json_texts.map(str.encode)))
def test_a_payload_keeps_its_spelling(event: Event) -> None:
    assert bytes(reread(event).data) == bytes(event.data).strip(b" \t\r\n")
    assert encode(reread(event).value) == encode(decode(bytes(event.data)))


@given(st.data(), events(whole_texts, json_texts.map(str.encode)))
def test_an_event_reads_the_same_however_its_envelope_is_spelled(data: st.DataObject, event: Event) -> None:
    members = raw_members(encode_event(event))
    for name in ("seq", "time"):
        spellings = [members[name], members[name] + b".0", members[name] + b"e0", b" %b\t" % members[name]]
        members[name] = data.draw(st.sampled_from(spellings))
    order = data.draw(st.permutations(list(members)))
    names = {
        name: data.draw(st.sampled_from([encode(name), b'"\\u%04x' % ord(name[0]) + encode(name[1:])[1:]]))
        for name in order
    }
    blank = data.draw(blanks).encode()
    line = b"{" + b",".join(blank + names[name] + b":" + members[name] + blank for name in order) + b"}"
    found = read_row(line)
    assert isinstance(found, Event)
    assert found == msgspec.structs.replace(event, data=found.data)
    assert bytes(found.data).strip() == bytes(event.data).strip()


@given(damaged())
def test_a_row_is_unparsable_exactly_when_it_is_not_json(payload: bytes) -> None:
    line = b'{"type":"x/y","seq":3,"time":4,"data":' + payload + b"}"
    try:
        value = decode(line)
    except JsonSyntaxError:
        with pytest.raises(RowError) as refused:
            read_row(line)
        assert refused.value.fault == "unparsable"
        return
    if set(value) == {"type", "seq", "time", "data"}:
        found = read_row(line)
        assert isinstance(found, Event)
        assert encode(found.value) == encode(value["data"])


@given(st.binary(max_size=40) | damaged())
def test_whatever_the_bytes_reading_a_row_only_raises_row_errors(line: bytes) -> None:
    for next_seq in (None, 7):
        with suppress(RowError):
            read_row(line, next_seq)


@given(st.dictionaries(whole_texts, json_texts, max_size=5), blanks)
def test_raw_members_are_the_exact_texts(members: dict[str, str], blank: str) -> None:
    inside = ",".join(f"{encode(name).decode()}{blank}:{blank}{text}" for name, text in members.items())
    line = f"{{{blank}{inside}{blank}}}".encode()
    expected = {decode(encode(name)): text.strip(" \t\r\n").encode() for name, text in members.items()}
    found = {name: text.strip(b" \t\r\n") for name, text in raw_members(line).items()}
    assert found == expected
    assert list(found) == list(expected)
    assert raw_members(join_members(found)) == found


@given(events(whole_texts, json_values.map(encode)), safe_counts)
def test_a_projected_row_is_completed_by_the_running_count(event: Event, next_seq: int) -> None:
    found = read_row(project_row(encode_event(event)), next_seq)
    assert found == msgspec.structs.replace(event, seq=next_seq, time=0)
    assert read_row(encode_event(event), next_seq) == event


# --- every known type ----------------------------------------------------------------------------


def block_values() -> st.SearchStrategy[Any]:
    leaf = st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
        st.fixed_dictionaries({"type": st.just("reasoning"), "text": texts}),
        st.fixed_dictionaries({"type": st.just("tool-call"), "id": texts, "name": texts, "arguments": texts}),
        st.fixed_dictionaries({"type": texts, "x": json_values}),
        json_values,
    )
    result = st.fixed_dictionaries(
        {"type": st.just("tool-result"), "toolCallId": texts, "content": st.lists(leaf, max_size=2)},
        optional={"isError": st.booleans()},
    )
    return leaf | result


def values_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """JSON values of a field's type, as dsh would write them."""
    match kind:
        case inspect.AnyType():
            return json_values
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return safe_integers
        case inspect.FloatType():
            return safe_integers | st.floats(allow_nan=False, allow_infinity=False).filter(bool)
        case inspect.StrType():
            return texts
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.UnionType():
            return st.one_of(*map(values_of, kind.types))
        case inspect.VarTupleType() | inspect.ListType():
            return st.lists(values_of(kind.item_type), max_size=2)
        case inspect.DictType():
            return st.dictionaries(whole_texts, values_of(kind.value_type), max_size=2)
        case inspect.CustomType(cls=cls):
            assert cls is Block
            return block_values()
        case inspect.StructType(cls=cls):
            return payload_values(cls)
    raise AssertionError(f"no strategy for {kind}")


def payload_values(kind: type[Any], unknown: bool = True) -> st.SearchStrategy[Any]:
    """Objects with every mandatory field, some optional ones, and fields the class does not name."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    required = {field.encode_name: values_of(field.type) for field in info.fields if field.required}
    optional = {field.encode_name: present(field.type) for field in info.fields if not field.required}
    known = st.fixed_dictionaries(required, optional=optional)
    foreign = st.dictionaries(
        whole_texts.filter(lambda name: name not in required and name not in optional), json_values
    )
    return st.builds(lambda a, b, first: b | a if first else a | b, known, foreign, st.booleans())


def present(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """An optional field is absent or has a value, never null."""
    if isinstance(kind, inspect.UnionType):
        return st.one_of(*(values_of(part) for part in kind.types if not isinstance(part, inspect.NoneType)))
    return values_of(kind)


PAYLOAD_VALUES = {name: payload_values(kind) for name, kind in PAYLOADS.items()}


@pytest.mark.parametrize("event_type", sorted(KNOWN_TYPES))
@settings(max_examples=200 if SWEEP else 8)
@given(st.data())
def test_every_known_type_comes_back_byte_for_byte(event_type: str, data: st.DataObject) -> None:
    value = data.draw(PAYLOAD_VALUES[event_type])
    event = data.draw(events(st.just(event_type), st.just(encode_lossless(value))))
    line = encode_event(event)
    found = read_row(line)
    assert found == event
    assert isinstance(found, Event)
    assert encode_event(found) == line
    assert encode(found.value) == encode(value)
    assert_shows(found.payload, value)


def assert_shows(typed: Any, value: Any) -> None:
    """The typed view holds the value of every field that its class names."""
    if isinstance(typed, OtherBlock):
        typed = typed.value
    if isinstance(typed, Record):
        info = inspect.type_info(type(typed))
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            assert_shows(getattr(typed, field.name), value.get(field.encode_name))
    elif isinstance(typed, tuple):
        assert len(typed) == len(value)
        for one, other in zip(typed, value, strict=True):
            assert_shows(one, other)
    else:
        assert encode(typed) == encode(value)


@given(st.sampled_from(sorted(KNOWN_TYPES)), json_values)
def test_a_known_payload_is_read_or_refused_with_its_seq(event_type: str, value: Any) -> None:
    event = Event(event_type, 5, 0, Raw(encode(value)))
    try:
        assert isinstance(event.payload, PAYLOADS[event_type])
    except SessionPersistenceCorruptionError as error:
        refused = error
    else:
        return
    assert refused.seq == 5
    assert event_type in str(refused)


# --- header lines --------------------------------------------------------------------------------

ordinals = st.integers(0, 2**31)
spawns = (
    st.none()
    | st.builds(CallSpawn, ordinals, ordinals, ordinals, ordinals, texts, texts)
    | st.builds(HostSpawn, st.builds(HostPlace, ordinals, ordinals))
)


@st.composite
def headers(draw: st.DrawFn) -> tuple[SessionHeader, SessionLogOffset]:
    cut = draw(st.none() | safe_counts)
    header = SessionHeader(
        id=draw(whole_texts.filter(bool)),
        created_at=draw(safe_counts),
        is_seeded=cut is not None,
        cwd=draw(st.none() | whole_texts),
        parent_session=draw(st.none() | whole_texts),
        origin=draw(st.sampled_from([None, "subagent"])),
        delegation_depth=draw(st.none() | safe_counts),
        agent_preset=draw(st.none() | whole_texts),
        spawn=draw(spawns.map(joined)),
    )
    return header, SessionLogOffset(cut or 0)


def joined(spawn: CallSpawn | HostSpawn | None) -> CallSpawn | HostSpawn | None:
    """A spawn fact whose texts have no surrogates that meet, as no JSON reader gives them back apart."""
    if not isinstance(spawn, CallSpawn):
        return spawn
    return msgspec.structs.replace(
        spawn, call_id=join_surrogates(spawn.call_id), tool=join_surrogates(spawn.tool)
    )


@given(headers())
def test_a_header_line_reads_back_as_the_header_and_the_cut(
    both: tuple[SessionHeader, SessionLogOffset],
) -> None:
    header, cut = both
    line = to_header_line(header, cut)
    assert from_header_line(line) == (msgspec.structs.replace(header, delegation_depth=header.depth), cut)
    assert to_header_line(*from_header_line(line)) == line
    assert b"\n" not in line
    assert canonical_text(line) == canonical(decode(line))


@given(headers(), st.randoms(use_true_random=False), st.dictionaries(whole_texts, json_values, max_size=3))
def test_order_and_foreign_keys_change_nothing(
    both: tuple[SessionHeader, SessionLogOffset], order: Any, foreign: dict[str, Any]
) -> None:
    header, cut = both
    known = decode(to_header_line(header, cut))
    reserved = {
        *known,
        "cwd",
        "parentSession",
        "seedLength",
        "origin",
        "agentPreset",
        "spawn",
        "sandboxMode",
        "approvalPolicy",
    }
    members = [*known.items(), *((name, value) for name, value in foreign.items() if name not in reserved)]
    order.shuffle(members)
    assert from_header_line(encode(dict(members))) == from_header_line(to_header_line(header, cut))


def test_packed_rows_are_no_events() -> None:
    """The strategy above leaves them out because such a row must be a whole packed row."""
    for name in PACKED_TYPES:
        with pytest.raises(RowError) as refused:
            read_row(encode_event(Event(name, 0, 0, Raw(b"{}"))))
        assert refused.value.fault == "unparsable"
    assert issubclass(PackedRow, msgspec.Struct)
