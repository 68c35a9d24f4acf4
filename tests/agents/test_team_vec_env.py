"""A team as a `VecEnv` of Stable-Baselines3, held against its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from players import NAMES, Meadow

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

import shoal
from learning.teams import Told
from shoal.vector import rows_of_team
from shoal.vector.sb3 import TeamVecEnv
from trace_of import assert_same

NUM_ENVS, SIZE = 3, len(NAMES)


def team(env: Any = Meadow, num_envs: int = NUM_ENVS, **settings: Any) -> Any:
    settings = {"backend": "serial", "autoreset": "same_step"} | settings
    return shoal.make_team(env, num_envs, **settings)


@pytest.fixture(params=["serial", "process"])
def envs(request: pytest.FixtureRequest) -> Iterator[TeamVecEnv]:
    made = TeamVecEnv(team(backend=request.param, env_kwargs={"render_mode": "rgb_array"}))
    yield made
    made.close()


def test_steps_are_those_of_the_rows(envs: TeamVecEnv) -> None:
    assert isinstance(envs, VecEnv)
    assert envs.num_envs == NUM_ENVS * SIZE
    random, rows = np.random.default_rng(0), rows_of_team(team())
    envs.seed(3)
    seen, infos = rows.reset(seed=3)
    assert_same(envs.reset(), seen)
    assert [info.get("born") for info in envs.reset_infos] == [0, 1, 2, None] * NUM_ENVS
    num_ends, num_cut, num_absent = 0, 0, 0
    for _ in range(40):
        actions = random.integers(3, size=envs.num_envs)
        got, gains, dones, told = envs.step(actions)
        seen, rewards, terminations, truncations, infos = rows.step(actions)
        assert_same((got, gains), (seen, rewards.astype(np.float32)))
        assert gains.dtype == np.float32
        assert_same(dones, terminations | truncations)
        assert [info["present"] for info in told] == infos["present"].tolist()
        num_absent += infos["present"].tolist().count(False)
        for row, info in enumerate(told):
            cut = bool(truncations[row] and not terminations[row])
            assert info["TimeLimit.truncated"] is cut
            assert ("terminal_observation" in info) == dones[row]
            num_cut += cut
            if dones[row]:
                num_ends += 1
                assert_same(info["terminal_observation"], infos["final_obs"][row])
                last = infos["final_info"]
                assert ("time" in info) == bool(last.get("_time", np.zeros(12, bool))[row])
    rows.close()
    assert min(num_ends - num_cut, num_cut, num_absent) > 2


def test_seeds_and_options_count_once_and_are_those_of_the_first_row(envs: TeamVecEnv) -> None:
    envs.seed(5)
    envs.set_options([{"place": float(row)} for row in range(envs.num_envs)])
    seen = envs.reset()
    with team() as plain:
        options = [{"place": float(SIZE * i)} for i in range(NUM_ENVS)]
        expected, _ = plain.reset(seed=[5, 9, 13], options=options)
        for k, name in enumerate(NAMES):
            assert_same(seen[k::SIZE], expected[name])
        assert_same(envs.reset()[::SIZE], plain.reset()[0]["ann"])


def test_rows_are_asked_through_their_environments(envs: TeamVecEnv) -> None:
    envs.reset()
    envs.set_attr("height", 2.0, indices=[5, 6, -1])
    assert envs.get_attr("height") == [1.0] * SIZE + [2.0] * (2 * SIZE)
    assert envs.get_attr("height", indices=[4, 0]) == [2.0, 1.0]
    assert envs.env_method("observation_space", "ann", indices=3) == [envs.observation_space]
    assert envs.has_attr("height")
    assert not envs.has_attr("depth")
    assert envs.env_is_wrapped(Monitor) == [False] * envs.num_envs
    assert len(envs.get_images()) == NUM_ENVS
    with pytest.raises(AttributeError, match="depth"):
        envs.get_attr("depth")


class Counting(Meadow):
    """Counts how often it is asked."""

    asked = 0

    def ask(self) -> int:
        self.asked += 1
        return self.asked


def test_an_environment_is_asked_once_for_all_of_its_rows() -> None:
    envs = TeamVecEnv(team(Counting))
    assert envs.env_method("ask", indices=[0, 1, 2, 7]) == [1, 1, 1, 1]
    assert envs.env_method("ask", indices=[0]) == [2]
    envs.close()
    envs.close()
    assert envs.closed


def test_a_lost_team_is_cut_off_in_all_of_its_rows() -> None:
    from test_teams import Crashing

    envs = TeamVecEnv(team(Crashing, backend="process", num_workers=NUM_ENVS))
    envs.seed(0)
    envs.reset()
    envs.set_attr("height", 5.0, indices=[SIZE])
    for _ in range(6):
        _, gains, dones, infos = envs.step(np.zeros(envs.num_envs, int))
        lost = [bool(info.get("restarted")) for info in infos]
        if any(lost):
            break
    assert lost == [False] * SIZE + [True] * SIZE + [False] * SIZE
    cut = [infos[row]["present"] for row in range(SIZE, 2 * SIZE)]
    assert any(cut)
    assert dones[SIZE : 2 * SIZE].tolist() == cut
    assert [info["TimeLimit.truncated"] for info in infos[SIZE : 2 * SIZE]] == cut
    assert not gains[SIZE : 2 * SIZE].any()
    envs.close()


def test_ppo_learns_a_team_of_rows() -> None:
    torch.set_num_threads(1)
    envs = VecMonitor(TeamVecEnv(team(Told, 4)))
    settings = {"n_steps": 16, "batch_size": 32, "gamma": 0.9, "learning_rate": 5e-3}
    model = PPO("MlpPolicy", envs, **settings, seed=0, device="cpu")
    model.learn(3000)
    seen = np.array([[1.0], [-1.0]], np.float32)
    assert model.predict(seen, deterministic=True)[0].tolist() == [1, 0]
    envs.close()


def test_wrappers_of_stable_baselines3_work_on_rows() -> None:
    envs = VecNormalize(TeamVecEnv(team("mpe2.simple_spread_v3:parallel_env", 2)))
    seen = envs.reset()
    for _ in range(30):
        seen, *_ = envs.step(np.ones(6, int))
    assert seen.shape == (6, 18)
    envs.close()
