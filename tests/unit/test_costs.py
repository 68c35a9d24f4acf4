"""Are the constants behind `backend="auto"` fitted rightly?"""

from __future__ import annotations

import pytest

from benchmarks.costs import fit, jobs_for
from shoal.vector.choice import COSTS, Cost

TRUE = Cost(batch_s=20e-6, worker_s=3e-6, env_s=1.5e-6)
OWN_S = 0.3e-6


def points(workers: tuple[int, ...]) -> list[tuple[int, int, float]]:
    """Times that the model gives."""
    return [
        (count, num_envs, TRUE.batch_s + count * TRUE.worker_s + share * (TRUE.env_s + OWN_S))
        for count in workers
        for num_envs in (2, 8, 32, 128)
        if (share := -(-num_envs // count))
    ]


def test_costs_are_found_again() -> None:
    cost, error = fit(points((1, 2, 4, 8)), OWN_S)
    assert cost.batch_s == pytest.approx(TRUE.batch_s)
    assert cost.worker_s == pytest.approx(TRUE.worker_s)
    assert cost.env_s == pytest.approx(TRUE.env_s)
    assert error == pytest.approx(0.0, abs=1e-6)


def test_with_one_number_of_workers_they_are_part_of_the_batch() -> None:
    cost, _ = fit(points((2,)), OWN_S)
    assert cost.worker_s == 0.0
    assert cost.batch_s == pytest.approx(TRUE.batch_s + 2 * TRUE.worker_s)


@pytest.mark.parametrize("cores", [2, 3, 16])
def test_every_cost_is_measured(cores: int) -> None:
    names = {name for name, _ in jobs_for(cores, 0.1)}
    assert names == COSTS.keys()
