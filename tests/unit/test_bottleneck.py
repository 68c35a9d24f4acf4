"""Is what holds a pool back named rightly, and the figures with it?"""

from __future__ import annotations

import time
from functools import partial

import pytest

import shoal
from shoal.engine.bottleneck import ENOUGH_ROUNDS, Shares, bottleneck
from shoal.testing import CountingWorld


@pytest.mark.parametrize(
    ("waiting", "busy", "expected"),
    [
        (0.98, [0.95, 0.94], "the environments: workers busy 94%"),
        (0.95, [0.90, 0.20, 0.20], "the environments: workers busy 43%"),
        (0.95, [0.10, 0.12], "transport: workers busy 11%"),
        (0.20, [0.15, 0.15], "the caller: workers busy 15%"),
        (0.40, [0.10, 0.10], "the caller: workers busy 10%"),
        # Sent and received: workers step while the caller is elsewhere.
        (0.10, [0.95, 0.97], "the environments: workers busy 96%"),
        (0.00, [0.0], "the caller: workers busy 0%"),
    ],
)
def test_what_holds_a_pool_back(waiting: float, busy: list[float], expected: str) -> None:
    assert bottleneck(Shares(waiting, busy, rounds=1000)).startswith(expected)


def test_uneven_workers_are_told_of() -> None:
    said = bottleneck(Shares(0.95, [0.90, 0.20, 0.20], rounds=1000))
    assert "The busiest worker is at 90%: send and recv" in said


def test_shares_of_the_caller_add_up() -> None:
    shares = Shares(0.7, [0.5, 0.4], rounds=1000)
    assert shares.waiting + shares.elsewhere == pytest.approx(1.0)
    assert shares.transport == pytest.approx(0.2)
    said = bottleneck(shares)
    assert "caller waiting 70% (transport 20%), caller elsewhere 30%" in said


def test_nothing_is_said_too_early() -> None:
    assert bottleneck(Shares(0.5, [0.5], rounds=ENOUGH_ROUNDS - 1)).startswith("not known")


def test_a_pool_of_slow_environments_says_so() -> None:
    with shoal.make(partial(CountingWorld, work_s=1e-3), 2, backend="serial") as envs:
        assert envs.stats()["bottleneck"].startswith("not known")
        envs.reset(seed=0)
        for _ in range(ENOUGH_ROUNDS):
            envs.step([0, 0])
        said = envs.stats()["bottleneck"]
    assert said.startswith("the environments")
    assert "\n" not in said


def test_a_caller_who_is_elsewhere_is_told_so() -> None:
    with shoal.make("CartPole-v1", 2, backend="serial") as envs:
        envs.reset(seed=0)
        for _ in range(ENOUGH_ROUNDS + 1):
            envs.step([0, 0])
            end = time.perf_counter() + 2e-3
            while time.perf_counter() < end:  # a policy that takes its time
                pass
        assert envs.stats()["bottleneck"].startswith("the caller")
