"""Given what was measured, is the right place chosen?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.engine.probe import Probe, Unprobed
from shoal.vector.choice import (
    COSTS,
    GPU_WORKERS,
    MOST_WORKERS,
    Cost,
    Situation,
    batch_time,
    choose,
    in_words,
    needs_probe,
)

CARTPOLE = Probe(
    step_s=7e-6,
    cpu_s=7e-6,
    spread=0.3,
    reset_s=5e-6,
    build_s=1e-3,
    observation_bytes=16,
    memory_mb=4.0,
    lock_free=None,
    rests=0.0,
    uses_gpu=False,
    steps=5000,
)
EMPTY = replace(CARTPOLE, step_s=3e-7, cpu_s=3e-7)
HALF_MS = replace(CARTPOLE, step_s=5e-4, cpu_s=5e-4)
SLOW = replace(CARTPOLE, step_s=1e-2, cpu_s=1e-2)
SLEEPER = replace(CARTPOLE, step_s=1.1e-3, cpu_s=5e-5, rests=1.0)
PREEMPTED = replace(CARTPOLE, step_s=5e-4, cpu_s=2e-4, rests=0.0)
ON_GPU = replace(SLOW, uses_gpu=True)


# Of some machine and version: what is chosen must follow from them, not from today's engine.
FIXED = {
    "serial": Cost(batch_s=5e-6, worker_s=0.0, env_s=1e-6),
    "hybrid": Cost(batch_s=10e-6, worker_s=5e-6, env_s=1e-6),
    "process": Cost(batch_s=40e-6, worker_s=20e-6, env_s=1e-6),
    "process, a core to spare": Cost(batch_s=30e-6, worker_s=2e-6, env_s=1e-6),
}


def where(probe: Any, num_envs: int, cores: int, **kwargs: Any) -> tuple[str, int]:
    choice = choose(probe, Situation(num_envs, cores, **kwargs), FIXED)
    return choice.backend, choice.num_workers


@pytest.mark.parametrize(
    ("probe", "num_envs", "cores", "expected"),
    [
        # Cheap: the caller steps too, where there is a core beside it and something to share.
        (CARTPOLE, 64, 2, ("hybrid", 2)),
        (CARTPOLE, 64, 1, ("serial", 1)),
        (CARTPOLE, 2, 16, ("serial", 1)),
        (EMPTY, 2, 2, ("serial", 1)),
        (EMPTY, 8, 2, ("serial", 1)),
        (EMPTY, 256, 2, ("hybrid", 2)),
        # What they show has to be copied, too.
        (replace(EMPTY, observation_bytes=200_000), 8, 2, ("hybrid", 2)),
        # With many cores one of them may be the caller's, and nobody need give up isolation.
        (CARTPOLE, 64, 16, ("process", 15)),
        (EMPTY, 64, 16, ("process", 15)),
        # Not cheap: worker processes, as many as cores, never more than environments.
        (HALF_MS, 64, 2, ("process", 2)),
        # With many cores their caller is in the way of one, for which all wait. Where there are
        # few environments for each, a core less costs even more.
        (HALF_MS, 64, 16, ("hybrid", 16)),
        (HALF_MS, 16, 16, ("hybrid", 16)),
        (HALF_MS, 256, 16, ("process", 15)),
        (SLOW, 64, 16, ("process", 16)),
        (SLOW, 3, 16, ("process", 3)),
        (SLOW, 8, 1, ("process", 1)),
        # Waiting: more workers than cores.
        (SLEEPER, 32, 2, ("process", 32)),
        # A machine that is busy with others is not an environment that waits.
        (PREEMPTED, 64, 2, ("process", 2)),
        # A GPU is shared by few.
        (ON_GPU, 64, 16, ("process", GPU_WORKERS)),
        (ON_GPU, 64, 2, ("process", 2)),
        # Nothing known.
        (Unprobed("it hung"), 8, 2, ("process", 2)),
        (None, 8, 2, ("process", 2)),
        (None, 1, 2, ("serial", 1)),
    ],
)
def test_where_environments_go(
    probe: Any, num_envs: int, cores: int, expected: tuple[str, int]
) -> None:
    assert where(probe, num_envs, cores) == expected


@pytest.mark.parametrize(
    ("probe", "cores", "workers"), [(HALF_MS, 16, 15), (HALF_MS, 2, 2), (SLOW, 16, 16)]
)
def test_short_steps_leave_a_core_to_the_caller(probe: Any, cores: int, workers: int) -> None:
    """With many cores all would wait for the worker that shares one; long steps outlast that."""
    choice = choose(probe, Situation(64, cores, isolated=True))
    assert (choice.backend, choice.num_workers) == ("process", workers)


@pytest.mark.parametrize(
    ("step_s", "num_envs", "cores", "backend"),
    [
        (60e-6, 32, 2, "hybrid"),
        (60e-6, 64, 16, "process"),
        (300e-6, 32, 2, "process"),  # long enough that it makes no difference
        (600e-6, 2, 2, "process"),  # and these are worth isolating
        (300e-6, 2, 2, "hybrid"),
    ],
)
def test_on_two_cores_workers_are_in_the_callers_way(
    step_s: float, num_envs: int, cores: int, backend: str
) -> None:
    probe = replace(CARTPOLE, step_s=step_s, cpu_s=step_s)
    assert where(probe, num_envs, cores)[0] == backend


@pytest.mark.parametrize("probe", [EMPTY, CARTPOLE, SLOW, SLEEPER, Unprobed("it hung"), None])
@pytest.mark.parametrize("num_envs", [1, 2, 64])
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_isolation_that_was_asked_for_is_given(probe: Any, num_envs: int, cores: int) -> None:
    backend, workers = where(probe, num_envs, cores, isolated=True)
    assert backend == "process"
    assert 1 <= workers <= num_envs


@pytest.mark.parametrize("probe", [EMPTY, CARTPOLE, SLOW, SLEEPER, ON_GPU, Unprobed("it hung")])
def test_workers_are_as_many_as_the_user_says(probe: Any) -> None:
    backend, workers = where(probe, 12, 4, num_workers=3)
    assert workers == (1 if backend == "serial" else 3)


def test_one_worker_as_told_leaves_nobody_to_share_with() -> None:
    assert where(CARTPOLE, 8, 8, num_workers=1) == ("serial", 1)


def test_waiting_environments_get_as_many_workers_as_pay() -> None:
    barely = replace(SLEEPER, step_s=1e-4, cpu_s=4e-5)
    assert where(SLEEPER, 1000, 2) <= ("process", MOST_WORKERS)
    assert where(barely, 64, 2)[1] < where(SLEEPER, 64, 2)[1], "cores are soon full"
    assert where(SLEEPER, 3, 2) == ("process", 3)


def test_stragglers_are_worth_more_workers() -> None:
    """Whoever waits unevenly is waited for by all; what cores can compute is no limit then."""
    even = replace(SLEEPER, cpu_s=1.3e-4, spread=0.0)
    assert where(even, 32, 2) == ("process", 16)
    assert where(replace(even, spread=1.0), 32, 2) == ("process", 32)


def test_memory_bounds_the_workers_of_waiting_environments() -> None:
    large = replace(SLEEPER, memory_mb=500.0)
    assert where(large, 32, 2, free_mb=8000.0)[1] == 7
    assert where(large, 32, 2, free_mb=100.0)[1] == 2, "but cores are used in any case"


def test_vector_environments_cannot_be_split_among_workers() -> None:
    assert where(replace(SLEEPER, width=8), 32, 2) == ("process", 4)


def test_processes_are_given_up_only_for_a_clear_gain() -> None:
    """As steps get dearer there is one turn, from the caller's own process to workers."""
    for num_envs, cores in [(2, 2), (8, 2), (64, 2), (8, 1)]:
        steps = [k * 1e-6 for k in range(1, 3000, 20)]
        probes = [replace(CARTPOLE, step_s=one, cpu_s=one) for one in steps]
        found = [where(one, num_envs, cores)[0] == "process" for one in probes]
        assert found == sorted(found)
        assert not found[0]
        assert found[-1]


def test_the_model_knows_that_shares_are_stepped_side_by_side() -> None:
    alone = batch_time(FIXED["serial"], SLOW, 64, 1)
    assert batch_time(FIXED["process"], SLOW, 64, 16) < alone / 15
    assert batch_time(FIXED["process"], SLOW, 65, 16) == pytest.approx(
        batch_time(FIXED["process"], SLOW, 80, 16)
    ), "everyone waits for the largest share"


@pytest.mark.parametrize(
    "probe", [EMPTY, CARTPOLE, HALF_MS, SLOW, SLEEPER, ON_GPU, Unprobed("it hung"), None]
)
@pytest.mark.parametrize("num_envs", [1, 2, 64])
def test_a_reason_is_one_line(probe: Any, num_envs: int) -> None:
    reason = choose(probe, Situation(num_envs, 2)).reason
    assert reason
    assert "\n" not in reason


def test_nothing_is_measured_where_it_makes_no_difference() -> None:
    assert not needs_probe(Situation(1, 2))
    assert not needs_probe(Situation(2, 2, isolated=True))
    assert not needs_probe(Situation(64, 2, num_workers=4, isolated=True))
    assert needs_probe(Situation(64, 2, isolated=True)), "it may wait, and want more workers"
    assert needs_probe(Situation(64, 2, num_workers=4))
    assert needs_probe(Situation(2, 2))


def test_every_backend_that_is_chosen_among_has_its_costs() -> None:
    assert COSTS.keys() == FIXED.keys()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3e-7, "0.3 µs"),
        (7.2e-6, "7.2 µs"),
        (5e-4, "500 µs"),
        (1.1e-3, "1.1 ms"),
        (0.25, "250 ms"),
        (12.3, "12 s"),
    ],
)
def test_times_are_told_with_a_fitting_unit(seconds: float, text: str) -> None:
    assert in_words(seconds) == text
