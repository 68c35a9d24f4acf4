"""Do the names of other code bases do what is promised, by the same engine and the same loop?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from shoal.compat import ParallelEnv
from shoal.testing import CountingWorld, check_vector_env

torch = pytest.importorskip("torch")

from shoal.compat import PPOTrainer  # noqa: E402
from shoal.training.checkpoint import read  # noqa: E402

SMALL: dict[str, Any] = {
    "backend": "serial",
    "n_steps": 32,
    "n_epochs": 2,
    "batch_size": 32,
    "seed": 4,
    "device": "cpu",
}


def cart_pole() -> Any:
    return gymnasium.make("CartPole-v1")


def weights(agent: Any) -> dict[str, Any]:
    return {name: value.clone() for name, value in agent.state_dict().items()}


def assert_same(first: dict[str, Any], other: dict[str, Any]) -> None:
    assert first.keys() == other.keys()
    for name, value in first.items():
        assert torch.equal(value, other[name]), name


# --- ParallelEnv ---------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", [None, "spawn", "fork"])
def test_a_parallel_env_does_what_make_does_in_processes(start_method: str | None) -> None:
    with (
        ParallelEnv([cart_pole] * 3, start_method=start_method) as envs,
        shoal.make(cart_pole, 3, backend="serial", autoreset="same_step") as plain,
    ):
        assert (envs.n_envs, envs.num_envs) == (3, 3)
        assert envs.stats()["backend"] == "process"
        assert envs.stats()["start_method"] == (start_method or "forkserver")
        assert envs.single_action_space == plain.single_action_space
        assert np.array_equal(envs.reset(seed=7)[0], plain.reset(seed=7)[0])
        num_ended = 0
        for _ in range(60):
            actions = np.ones(3, dtype=np.int64)
            mine, theirs = envs.step(actions), plain.step(actions)
            for one, other in zip(mine[:4], theirs[:4], strict=True):
                assert np.array_equal(one, other)
            num_ended += int(mine[2].sum())
            assert ("final_obs" in mine[4]) == bool(mine[2].any())
        assert num_ended > 3


def test_a_parallel_env_is_a_vector_environment_that_keeps_its_contract() -> None:
    with ParallelEnv([CountingWorld] * 3) as envs:
        assert isinstance(envs, gymnasium.vector.VectorEnv)
        report = check_vector_env(envs)
        assert report.ok, str(report)


def test_each_function_makes_its_own_environment_and_each_seed_is_its_own() -> None:
    with ParallelEnv([lambda tag=tag: CountingWorld(tag) for tag in (30, 10, 20)]) as envs:
        observations, _ = envs.reset(seed=[11, 5, 8])
        assert envs.get_attr("tag") == (30, 10, 20)
        assert observations[:, 0].tolist() == [11, 5, 8]


class Choosy(CountingWorld):
    """Says what is possible."""

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return observation, info | {"action_mask": np.array([True, False])}


def test_action_masks_come_as_one_array() -> None:
    with ParallelEnv([Choosy] * 2) as envs:
        _, infos = envs.reset(seed=0)
        assert infos["action_mask"].tolist() == [[True, False]] * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "the list of environment factories is empty"),
        ("CartPole-v1", r"expected a list of functions.*\[make_env\] \* 8"),
        (cart_pole, "expected a list of functions"),
        ([cart_pole, 3], "cannot make environments from 3"),
    ],
)
def test_what_is_no_list_of_functions_is_refused(given: Any, message: str) -> None:
    with pytest.raises(shoal.ConfigError, match=message):
        ParallelEnv(given)


def test_an_unknown_start_method_is_refused() -> None:
    with pytest.raises(shoal.ConfigError, match="start_method"):
        ParallelEnv([cart_pole], start_method="teleport")


def test_environments_alone_need_no_torch() -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from shoal.compat import ParallelEnv\n"
        "from shoal.testing import CountingWorld\n"
        "with ParallelEnv([CountingWorld]) as envs:\n"
        "    print(envs.reset(seed=3)[0][0, 0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("3", "")


# --- PPOTrainer ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `shoal.train` makes of six updates."""
    folder = tmp_path_factory.mktemp("runs")
    return shoal.train(
        "ppo",
        env="CartPole-v1",
        n_envs=4,
        total_steps=6 * 32 * 4,
        run_dir=folder,
        calibrate=False,
        shows=False,
        **SMALL,
    )


@pytest.mark.parametrize("env", ["CartPole-v1", [cart_pole] * 4], ids=["id", "functions"])
def test_so_many_updates_give_the_weights_of_a_run(env: Any, run: Any) -> None:
    count = {} if isinstance(env, list) else {"n_envs": 4}
    with PPOTrainer(env, **count, **SMALL) as trainer:
        told = [trainer.train_episode_vectorized() for _ in range(6)]
        assert [one["steps"] for one in told] == [128 * k for k in range(1, 7)]
        assert_same(weights(trainer.agent), weights(run.agent))


def test_a_vectorized_turn_tells_what_it_came_to(run: Any) -> None:
    with PPOTrainer("CartPole-v1", n_envs=4, **SMALL) as trainer:
        told = [trainer.train_episode_vectorized() for _ in range(6)]
    assert all(one["n_envs"] == 4 for one in told)
    assert sum(one["n_completed_episodes"] for one in told) == run.summary["episodes"]
    last = told[-1]
    assert last["episode_reward"] == last["episode_length"]  # as CartPole has it
    assert last["mean_reward"] > 0
    assert {"policy_loss", "value_loss", "entropy"} <= last.keys()


def test_an_episode_is_as_many_updates_as_it_takes() -> None:
    few = {**SMALL, "n_steps": 8, "batch_size": 8}  # no episode of CartPole is that short
    with PPOTrainer("CartPole-v1", **few) as trainer:
        for _ in range(3):
            before = trainer.agent.version
            told = trainer.train_episode()
            assert told["n_completed_episodes"] == 1
            assert trainer.agent.version - before > told["episode_length"] / 8 - 1
            assert told["steps"] == 8 * trainer.agent.version


def test_what_was_saved_is_loaded_and_gone_on_with(tmp_path: Path, run: Any) -> None:
    file = tmp_path / "half.safetensors"
    with PPOTrainer("CartPole-v1", n_envs=4, **SMALL) as trainer:
        for _ in range(3):
            trainer.train_episode_vectorized()
        trainer.save(file)
        assert trainer.evaluate(3) == trainer.evaluate(3)
    assert read(file).about["step"] == 3 * 128
    assert shoal.load(file).act(np.zeros(4, np.float32)) in (0, 1)
    with PPOTrainer("CartPole-v1", resume_from=file) as resumed:
        told = [resumed.train_episode_vectorized() for _ in range(3)]
        assert_same(weights(resumed.agent), weights(run.agent))
        assert told[-1]["steps"] == 6 * 128
        assert told[0]["n_completed_episodes"] < 50, "the earlier ones are not counted again"


def test_a_goal_that_is_reached_ends_it() -> None:
    with PPOTrainer("CartPole-v1", total_steps=64, **SMALL) as trainer:
        told = [trainer.train_episode_vectorized() for _ in range(4)]
    assert [one["steps"] for one in told] == [32, 64, 64, 64]
    assert told[-1]["n_completed_episodes"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": "CartPol-v1"}, "Did you mean 'CartPole-v1'"),
        ({"env": "CartPole-v1", "learning_rat": 1.0}, "Did you mean 'learning_rate'"),
        ({"env": [cart_pole] * 2, "n_envs": 3}, "the list holds 2 factories"),
        ({"env": "CartPole-v1", "n_envs": 0}, "n_envs must be at least 1"),
    ],
)
def test_what_cannot_be_trained_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(shoal.ConfigError, match=message):
        PPOTrainer(**arguments)


def test_a_parallel_env_is_not_taken_twice() -> None:
    with ParallelEnv([cart_pole]) as envs:
        with pytest.raises(shoal.ConfigError, match="each worker builds its own"):
            PPOTrainer(envs)


def test_closing_twice_does_no_harm() -> None:
    trainer = PPOTrainer("CartPole-v1", **SMALL)
    trainer.close()
    trainer.close()
