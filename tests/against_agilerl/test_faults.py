"""Faults of AgileRL 2.58's vector environment that the drop-in does not have.

The list in docs/coming-from-agilerl.md is this file's.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv as Theirs
from chase import LENGTHS, Chase
from test_training import train

import shoal
from shoal.vector.agilerl import AsyncPettingZooVecEnv as Ours


@pytest.fixture(params=[Theirs, Ours], ids=["theirs", "ours"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def opened(kind: Any) -> Iterator[Any]:
    made: list[Any] = []

    def open_kind(factories: list[Any], **how: Any) -> Any:
        made.append(kind(factories, **how))
        return made[-1]

    yield open_kind
    for envs in made:
        envs.close(terminate=True)


def steps(envs: Any, count: int) -> Any:
    for _ in range(count):
        results = envs.step({name: np.ones(envs.num_envs, int) for name in envs.agents})
    return results


def test_what_an_episode_ended_with(kind: Any, opened: Any) -> None:
    envs = opened([Chase])
    envs.reset(seed=0)
    seen, _, _, cut, infos = steps(envs, max(LENGTHS))
    assert cut["agent_1"][0]
    assert seen["agent_1"][0, 1] == 0  # of the next episode
    if kind is Theirs:
        assert infos["agent_1"] == {}
    else:
        assert infos["agent_1"]["final_obs"][0, 1] == max(LENGTHS)


def test_flags_of_agents_who_are_gone(kind: Any, opened: Any) -> None:
    envs = opened([Chase])
    envs.reset(seed=0)
    _, rewards, ended, _, _ = steps(envs, LENGTHS[2] + 1)
    if kind is Theirs:
        assert ended["agent_2"].dtype == np.float64
        assert np.isnan(ended["agent_2"][0])
        assert np.isnan(rewards["agent_2"][0])
    else:
        assert ended["agent_2"].dtype == np.bool_
        assert ended["agent_2"][0]
        assert rewards["agent_2"][0] == 0.0


def test_integers_of_agents_who_are_gone(kind: Any, opened: Any) -> None:
    envs = opened([partial(Chase, "numbers")])
    envs.reset(seed=0)
    seen, *_ = steps(envs, LENGTHS[2] + 1)
    if kind is Theirs:  # NaN as an integer
        assert not envs.single_observation_space("agent_2").contains(seen["agent_2"].ravel()[0])
    else:
        assert seen["agent_2"][0] == 0


def test_ippo_where_agents_die(kind: Any) -> None:
    if kind is Theirs:
        with pytest.raises(RuntimeError, match="nan"):
            train(kind, "IPPO", Chase, 512)
    else:
        train(kind, "IPPO", Chase, 512)


def test_agents_who_are_told_nothing_in_a_step(kind: Any, opened: Any) -> None:
    envs = opened([partial(Chase, pauses=True)])
    envs.reset(seed=0)
    steps(envs, LENGTHS[0])  # the only one who is told anything ends; another one lives
    assert envs.get_attr("time") == ((0,) if kind is Theirs else (LENGTHS[0],))


def test_an_answer_that_comes_late(kind: Any, opened: Any) -> None:
    envs = opened([partial(Chase, slow_s=0.5)])
    envs.call_async("render")
    with pytest.raises(multiprocessing.TimeoutError):
        envs.call_wait(timeout=0.01)
    if kind is Theirs:
        assert envs.call("num_agents") == ("rendered",)  # the answer to what was asked before
    else:
        assert envs.call_wait() == ("rendered",)
        assert envs.call("num_agents") == (0,)


def test_after_an_exception_of_an_environment(kind: Any, opened: Any) -> None:
    envs = opened([Chase, Chase])
    with pytest.raises(AttributeError):
        envs.call("nowhere")
    if kind is Theirs:
        with pytest.raises(AssertionError, match="shut down"):
            envs.reset()
    else:
        envs.reset()


def test_a_worker_that_is_killed(kind: Any, opened: Any) -> None:
    if kind is Theirs:
        envs = opened([Chase, Chase])
        envs.reset(seed=0)
        os.kill(envs.processes[0].pid, signal.SIGKILL)
        envs.processes[0].join()
        with pytest.raises((EOFError, OSError)):
            steps(envs, 1)
        return
    envs = opened([Chase, Chase], on_failure="restart")
    envs.reset(seed=0)
    os.kill(envs.call("pid")[0], signal.SIGKILL)
    *_, infos = steps(envs, 1)
    assert infos["restarted"].any()
    with Ours([Chase, Chase]) as others:
        others.reset(seed=0)
        os.kill(others.call("pid")[0], signal.SIGKILL)
        with pytest.raises(shoal.WorkerDied):
            steps(others, 1)


def test_views(kind: Any, opened: Any) -> None:
    envs = opened([Chase], copy=False)
    seen, _ = envs.reset(seed=0)
    is_view = np.shares_memory(seen["agent_0"], seen["agent_0"])
    assert is_view == (kind is Ours)


def test_environments_built_to_be_looked_at(kind: Any, opened: Any, tmp_path: Any) -> None:
    opened([partial(Chase, births=str(tmp_path))] * 2).reset()
    built = {name.split("-")[0] for name in os.listdir(tmp_path)}
    assert (str(os.getpid()) in built) == (kind is Theirs)
    assert len(os.listdir(tmp_path)) == (3 if kind is Theirs else 2)
