"""The cut: what is inherited, what is own."""

from __future__ import annotations

import pytest

from seedline.errors import SessionPersistenceCorruptionError
from seedline.session.header import SessionLogOffset
from seedline.session.lineage import inherited, own
from tests.unit.session.make import event, events_of, packed

LOG = events_of(event("a/b", 0), packed(1, "x", "y", "z"), event("a/b", 4))


@pytest.mark.parametrize("cut", range(6))
def test_inherited_and_own_are_the_whole_log(cut: int) -> None:
    offset = SessionLogOffset(cut)
    assert [e.seq for e in inherited(LOG, offset)] == list(range(cut))
    assert [e.seq for e in own(LOG, offset)] == list(range(cut, 5))
    assert own(LOG, offset).first_seq == cut


def test_a_cut_beyond_the_log_is_corruption() -> None:
    for look in (own, inherited):
        with pytest.raises(SessionPersistenceCorruptionError, match="6 events are inherited, the log has 5"):
            look(LOG, SessionLogOffset(6))
