"""Is an episode that comes out differently when it is taken once more told apart?"""

from __future__ import annotations

import math

import pytest

from shoal.engine.commands import Episode, ResetArgs
from shoal.engine.retrace import Moment, difference


@pytest.mark.parametrize(
    ("recorded", "now", "is_same"),
    [
        (1.0, 1.0, True),
        (1.0, 2.0, False),
        (1.0, math.nan, False),
        (math.nan, 1.0, False),
        (math.nan, math.nan, True),
    ],
)
def test_returns_are_the_same_or_not_even_where_they_are_no_numbers(
    recorded: float, now: float, is_same: bool
) -> None:
    episode = Episode(ResetArgs(7), None, [], {}, [], 3, recorded, False)
    assert (difference(Moment(3, None, now, False), episode) == "") == is_same
