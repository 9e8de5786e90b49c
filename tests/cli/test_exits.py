"""Which exit code wins over several paths."""

from __future__ import annotations

from itertools import permutations

import pytest

from seedline.cli.exits import MEANINGS, worst


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 1], 1),
        ([1, 3], 3),
        ([3, 4], 4),
        ([4, 5], 5),
        ([0, 1, 3, 4, 5], 5),
        ([1, 4, 0], 4),
    ],
)
def test_five_before_four_before_three_before_one_before_zero(codes: list[int], code: int) -> None:
    assert {worst(order) for order in permutations(codes)} == {code}


def test_every_code_has_a_meaning() -> None:
    assert sorted(MEANINGS) == [0, 1, 2, 3, 4, 5, 130]
