"""Cursors belong to one question."""

from __future__ import annotations

import pytest

from seedline.errors import QueryError
from seedline.query.cursor import check_limit, seal, unseal
from seedline.query.sessions import SessionFilter


def test_a_cursor_gives_its_place_back() -> None:
    question = ["sessions", SessionFilter(cwds=("/a", None))]
    assert unseal(question, seal(question, 1, -5, "an \ud83d id"), tuple[int, int, str]) == (
        1,
        -5,
        "an \ud83d id",
    )


def test_a_cursor_of_another_question_is_refused() -> None:
    cursor = seal(["sessions", SessionFilter()], 3)
    with pytest.raises(QueryError, match="another question") as caught:
        unseal(["sessions", SessionFilter(cwds=("/a",))], cursor, tuple[int])
    assert caught.value.code == "INVALID_CURSOR"


@pytest.mark.parametrize("cursor", ["", "é", "AAAA", "AAAAAAAAAAAAAAAA", "====", "A", seal("q", "text")])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(QueryError) as caught:
        unseal("q", cursor, tuple[int])
    assert caught.value.code == "INVALID_CURSOR"


@pytest.mark.parametrize("limit", [0, -1, 11, True, 2.0, None])
def test_a_limit_has_a_range(limit: object) -> None:
    with pytest.raises(QueryError) as caught:
        check_limit(limit, 10)
    assert caught.value.code == "INVALID_LIMIT"
    check_limit(10, 10)
