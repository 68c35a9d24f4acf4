"""Do Stable-Baselines3's algorithms, wrappers and callbacks do on the drop-ins what they do on its
own vector environments?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import A2C, DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common import vec_env as theirs
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import is_wrapped, make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
    is_vecenv_wrapped,
    unwrap_vec_normalize,
)

from sb3_worlds import Line, Screen, cart_pole, pendulum
from shoal.testing import CountingWorld
from shoal.vector.sb3 import DummyVecEnv, SubprocVecEnv
from trace_of import assert_same

DROP_INS: dict[str, Any] = {
    "dummy": DummyVecEnv,
    "subproc": functools.partial(SubprocVecEnv, num_workers=2),
}
CPU = {"device": "cpu", "seed": 3}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """More of them only get into each other's way where networks are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DROP_INS)
def kind(request: pytest.FixtureRequest) -> Any:
    return DROP_INS[request.param]


@pytest.fixture
def on_both(kind: Any) -> Iterator[Callable[..., Any]]:
    """What a function makes of their vector environment, and of ours: both."""
    made: list[Any] = []

    def do(work: Callable[[Any], Any], env_fns: list[Any]) -> tuple[Any, Any]:
        results = []
        for make in (theirs.DummyVecEnv, kind):
            made.append(make(env_fns))
            made[-1].seed(5)
            results.append(work(made[-1]))
        return tuple(results)

    yield do
    for envs in made:
        envs.close()


def weights(model: Any) -> dict[str, Any]:
    return {name: value.numpy() for name, value in model.policy.state_dict().items()}


# --- algorithms ----------------------------------------------------------------------------------

SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 2}


@pytest.mark.parametrize(
    "learn",
    [
        lambda envs: PPO("MlpPolicy", envs, **SMALL, **CPU).learn(512),
        lambda envs: A2C("MlpPolicy", envs, **CPU).learn(400),
        lambda envs: PPO("MlpPolicy", VecNormalize(envs), **SMALL, **CPU).learn(512),
    ],
    ids=["ppo", "a2c", "ppo_normalised"],
)
@pytest.mark.parametrize("env", [cart_pole, pendulum])
def test_what_is_learnt_is_the_same_bit_for_bit(
    on_both: Any, learn: Callable[[Any], Any], env: Any
) -> None:
    expected, got = on_both(lambda envs: weights(learn(envs)), [env] * 4)
    assert_same(got, expected)


def test_a_replay_buffer_fills_with_the_same(on_both: Any) -> None:
    def learn(envs: Any) -> Any:
        model = DQN("MlpPolicy", envs, learning_starts=40, buffer_size=500, **CPU).learn(200)
        buffer = model.replay_buffer
        return weights(model), buffer.next_observations[: buffer.pos], buffer.timeouts[: buffer.pos]

    expected, got = on_both(learn, [cart_pole] * 2)
    assert_same(got, expected)


def test_goals_are_relabelled_by_the_environments_own_reward(on_both: Any) -> None:
    def learn(envs: Any) -> Any:
        model = SAC(
            "MultiInputPolicy",
            envs,
            replay_buffer_class=HerReplayBuffer,
            replay_buffer_kwargs={"n_sampled_goal": 2},
            learning_starts=30,
            buffer_size=1000,
            batch_size=16,
            **CPU,
        ).learn(60)
        # Sampling asks env 0 only; its own step asks once each.
        return weights(model), envs.get_attr("asked")

    expected, got = on_both(learn, [Line] * 2)
    assert_same(got, expected)
    assert got[1][0] > got[1][1]


def test_a_model_goes_on_with_other_environments(kind: Any, tmp_path: Path) -> None:
    def go_on(make: Any) -> Any:
        first = make([cart_pole] * 2)
        PPO("MlpPolicy", first, **SMALL, **CPU).learn(64).save(tmp_path / "model")
        first.close()
        second = make([cart_pole] * 2)
        model = PPO.load(tmp_path / "model", env=second, device="cpu")
        third = make([cart_pole] * 2)
        model.set_random_seed(8)
        model.learn(64)
        second.close()
        third.seed(4)
        model.set_env(third)
        model.learn(64)
        third.close()
        return weights(model)

    assert_same(go_on(kind), go_on(theirs.DummyVecEnv))


# --- wrappers ------------------------------------------------------------------------------------


def trace(envs: Any, steps: int = 60) -> list[Any]:
    envs.action_space.seed(1)
    found: list[Any] = [envs.reset()]
    for _ in range(steps):
        observations, rewards, dones, infos = envs.step(
            np.array([envs.action_space.sample() for _ in range(envs.num_envs)])
        )
        ends = [(info["TimeLimit.truncated"], info.get("terminal_observation")) for info in infos]
        episodes = [info["episode"]["r"] for info in infos if "episode" in info]
        found.append([observations, rewards, dones, ends, episodes])
    return found


PICTURES = [functools.partial(CountingWorld, tag, obs="pixels") for tag in range(3)]
NUMBERS = [cart_pole] * 3


@pytest.mark.parametrize(
    ("wrap", "env_fns"),
    [
        (VecNormalize, NUMBERS),
        (VecMonitor, NUMBERS),
        (functools.partial(VecFrameStack, n_stack=3), NUMBERS),
        (functools.partial(VecFrameStack, n_stack=2), PICTURES),
        (functools.partial(VecCheckNan, raise_exception=True), NUMBERS),
        (VecTransposeImage, PICTURES),
        (lambda envs: VecFrameStack(VecNormalize(VecMonitor(envs)), 2), NUMBERS),
    ],
    ids=["normalize", "monitor", "stack", "stack_pictures", "check_nan", "transpose", "all"],
)
def test_their_wrappers_give_on_ours_what_they_give_on_theirs(
    on_both: Any, wrap: Callable[[Any], Any], env_fns: list[Any]
) -> None:
    expected, got = on_both(lambda envs: trace(wrap(envs)), env_fns)
    assert any(dones.any() for _, _, dones, *_ in expected[1:])
    assert_same(got, expected)


def test_wrappers_find_each_other_and_what_they_are_around(kind: Any) -> None:
    inner = kind([cart_pole] * 2)
    envs = VecMonitor(VecNormalize(inner))
    assert envs.unwrapped is inner
    assert is_vecenv_wrapped(envs, VecNormalize)
    assert unwrap_vec_normalize(envs) is envs.venv
    assert envs.stats()["num_envs"] == 2  # found on the innermost
    assert inner.getattr_depth_check("stats", already_found=True) is not None
    assert inner.getattr_depth_check("nothing", already_found=True) is None
    assert envs.env_is_wrapped(TimeLimit) == [True, True]
    with pytest.raises(AttributeError, match="nothing"):
        _ = envs.nothing
    envs.close()
    assert inner.closed


def test_statistics_are_saved_and_put_around_others(kind: Any, tmp_path: Path) -> None:
    envs = VecNormalize(kind([cart_pole] * 2))
    envs.reset()
    envs.step(np.ones(2, np.int64))
    envs.save(str(tmp_path / "statistics"))
    envs.close()
    others = kind([cart_pole] * 2)
    again = VecNormalize.load(str(tmp_path / "statistics"), others)
    assert np.array_equal(again.obs_rms.mean, envs.obs_rms.mean)
    again.close()


def test_a_video_is_written(kind: Any, tmp_path: Path) -> None:
    envs = VecVideoRecorder(
        make_vec_env("CartPole-v1", 2, seed=0, vec_env_cls=kind),
        str(tmp_path),
        record_video_trigger=lambda step: step == 0,
        video_length=6,
    )
    assert envs.frames_per_sec == gymnasium.make("CartPole-v1").metadata["render_fps"]
    envs.reset()
    for _ in range(8):
        envs.step(np.zeros(2, np.int64))
    envs.close()
    assert [path.name for path in tmp_path.glob("*.mp4")] == ["rl-video-step-0-to-step-6.mp4"]


# --- what is around training ---------------------------------------------------------------------


@pytest.mark.parametrize("start_method", [None, "spawn", "fork"])
def test_their_function_makes_ours(start_method: str | None, tmp_path: Path) -> None:
    envs = make_vec_env(
        "CartPole-v1",
        3,
        seed=9,
        monitor_dir=str(tmp_path),
        vec_env_cls=SubprocVecEnv,
        vec_env_kwargs={"start_method": start_method, "num_workers": 2},
    )
    plain = make_vec_env("CartPole-v1", 3, seed=9)
    assert_same(envs.reset(), plain.reset())
    assert envs.env_is_wrapped(Monitor) == [True] * 3
    assert not is_wrapped(envs, Monitor)
    for _ in range(30):
        envs.step(np.ones(3, np.int64))
    envs.close()
    assert len(list(tmp_path.glob("*.monitor.csv"))) == 3


def test_a_policy_is_evaluated_as_on_theirs(on_both: Any) -> None:
    model = PPO("MlpPolicy", cart_pole(), **SMALL, **CPU)

    def evaluate(envs: Any) -> Any:
        return evaluate_policy(
            model, envs, n_eval_episodes=7, return_episode_rewards=True, warn=False
        )

    expected, got = on_both(evaluate, [cart_pole] * 3)
    assert got == expected
    assert len(got[0]) == 7


def test_callbacks_evaluate_on_ours_and_stop(kind: Any, tmp_path: Path) -> None:
    """A threshold that the first evaluation passes ends the training then and there."""
    envs, apart = kind([cart_pole] * 2), kind([cart_pole])
    callback = EvalCallback(
        apart,
        callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=1.0),
        best_model_save_path=str(tmp_path),
        log_path=str(tmp_path),
        n_eval_episodes=2,
        eval_freq=8,
        verbose=0,
        warn=False,
    )
    model = PPO("MlpPolicy", envs, **SMALL, **CPU).learn(10_000, callback=callback)
    assert model.num_timesteps == 16
    assert (tmp_path / "best_model.zip").exists()
    assert len(np.load(tmp_path / "evaluations.npz")["results"][0]) == 2
    envs.close()
    apart.close()


def test_pictures_are_turned_for_a_network_of_convolutions(on_both: Any) -> None:
    def learn(envs: Any) -> Any:
        model = A2C("CnnPolicy", envs, **CPU)
        assert isinstance(model.get_env(), VecTransposeImage)
        return weights(model.learn(20))

    expected, got = on_both(learn, [Screen] * 2)
    assert_same(got, expected)
