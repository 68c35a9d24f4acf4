"""F4: an endless step is ended when its time is up, and its worker is rebuilt."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import FULL, Record
from faults.recovering import cast, worlds
from shoal.seeding import env_seed
from shoal.testing.worlds import decode
from trace_of import assert_same

NUM_ENVS, TIMEOUT_S, ALLOWED_S = 6, 0.4, 0.3
HOWS = {"hang_sleep": "sleeping", "hang_spin": "a Python loop", "hold": "a C loop"}
CASES = list(itertools.product(["restart", "replay"], ["step", "recv"], ["first", "last"]))


def chosen_cases() -> list[Any]:
    """Everything with everything; in a short run each thing once."""
    if FULL:
        return [(how, *case) for how in HOWS for case in CASES]
    short = [CASES[0], CASES[7], CASES[1], CASES[6], CASES[3], CASES[4]]
    return [(how, *case) for how, case in zip([*HOWS, *HOWS], short, strict=True)]


def test_a_sum_in_c_holds_the_interpreter() -> None:
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.wait(0.0005):
            ticks[0] += 1

    def rate(work: Callable[[], object]) -> float:
        before, begun = ticks[0], time.perf_counter()
        work()
        return (ticks[0] - before) / (time.perf_counter() - begun)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        free = rate(lambda: time.sleep(0.2))
        held = rate(lambda: sum(range(20_000_000)))
    finally:
        stop.set()
        thread.join()
    assert held < 0.25 * free


@pytest.mark.parametrize(("how", "on_failure", "way", "which"), chosen_cases())
def test_an_endless_step_is_ended_and_its_worker_rebuilt(
    how: str, on_failure: str, way: str, which: str, tmp_path: Path, figure: Record
) -> None:
    culprit = 1 if which == "first" else NUM_ENVS - 1
    factories = cast(NUM_ENVS, culprit, tmp_path, [("step 3", how)], history=False)
    given = {"backend": "process", "num_workers": 3, "on_failure": on_failure}
    with shoal.make(factories, step_timeout_s=TIMEOUT_S, **given) as envs:
        results, took_s = _run(envs, way)
        stats = envs.stats()
    with shoal.make(worlds(NUM_ENVS, history=False), backend="serial") as envs:
        expected, _ = _run(envs, "step")
    (incident,) = stats["incidents"]
    assert (incident["kind"], incident["env_id"], incident["phase"]) == ("hung", culprit, "step")
    assert stats["timeouts"] == 1
    first = 2 * (culprit // 2)
    others = [i for i in range(NUM_ENVS) if on_failure == "replay" or i // 2 != culprit // 2]
    for got, wanted in zip(results[:4], expected[:4], strict=True):
        assert_same(got[others], wanted[others])
    if on_failure == "restart":
        assert np.flatnonzero(results[4]["restarted"]).tolist() == [first, first + 1]
        assert results[3][[first, first + 1]].all()
    else:
        assert "restarted" not in results[4]
    what = f"{HOWS[how]}, {on_failure}, {way}, {which} worker"
    figure("F4", what, f"time-out + {(took_s - TIMEOUT_S) * 1e3:.0f} ms")
    assert took_s >= TIMEOUT_S
    assert took_s <= TIMEOUT_S + (ALLOWED_S if FULL else 5.0)


def _run(envs: shoal.VectorEnv, way: str) -> tuple[Any, float]:
    """Two quiet steps, and a third in which somebody hangs; its results and how long it took."""
    envs.reset(seed=2)
    for _ in range(2):
        envs.step(np.ones(NUM_ENVS, dtype=np.int64))
    begun = time.perf_counter()
    actions = np.full(NUM_ENVS, 3)
    if way == "step":
        return envs.step(actions), time.perf_counter() - begun
    envs.send(actions)
    return envs.recv(NUM_ENVS)[:5], time.perf_counter() - begun


@pytest.mark.parametrize("on_failure", ["restart", "replay"])
def test_an_endless_reset_is_tried_again(on_failure: str, tmp_path: Path) -> None:
    script = [("reset", "hang_sleep"), ("reset", "hold")]
    given = {"backend": "process", "num_workers": 2, "on_failure": on_failure}
    with shoal.make(cast(4, 2, tmp_path, script), step_timeout_s=0.2, **given) as envs:
        observations, infos = envs.reset(seed=6)
        assert [decode(row).seed for row in observations] == [env_seed(6, i) for i in range(4)]
        assert "restarted" not in infos
        stats = envs.stats()
    assert [one["kind"] for one in stats["incidents"]] == ["hung"] * 2
    assert stats["timeouts"] == 2


def test_a_hang_during_a_replay_is_ended_too(tmp_path: Path) -> None:
    script = [("step 4", "sigkill"), ("step 2", "hang_sleep")]
    factories = cast(4, 3, tmp_path, script, history=False)
    given = {"backend": "process", "num_workers": 2, "on_failure": "replay"}
    traces = []
    for source in (factories, worlds(4, history=False)):
        with shoal.make(source, step_timeout_s=0.3, **given) as envs:
            envs.reset(seed=8)
            traces.append([envs.step(np.full(4, turn % 7)) for turn in range(8)])
            if source is factories:
                stats = envs.stats()
    assert_same(traces[0], traces[1])
    assert [(one["kind"], one["phase"]) for one in stats["incidents"]] == [
        ("died", "step"),
        ("hung", "replay"),
    ]


def test_recv_with_a_limit_of_its_own_goes_on_with_a_recovery_later(tmp_path: Path) -> None:
    factories = cast(4, 3, tmp_path, [("step 1", "hang_sleep")])
    given = {"backend": "process", "num_workers": 2, "batch_size": 1}
    with shoal.make(factories, step_timeout_s=0.4, **given) as envs:
        envs.reset(seed=0)
        envs.send(np.zeros(4, dtype=np.int64))
        assert envs.recv(2).env_ids.tolist() == [0, 1]
        late = 0
        while True:
            try:
                batch = envs.recv(2, timeout_s=0.05)
                break
            except TimeoutError:
                late += 1
        assert late >= 4
        assert batch.env_ids.tolist() == [2, 3]
        assert batch.infos["restarted"].all()
