"""The same seed gives the same weights, bit for bit: on every backend, and across a break."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from conftest import SETTINGS, Setting  # noqa: E402
from learning import worlds  # noqa: E402
from shoal.algos.networks import NetworkConfig  # noqa: E402
from shoal.algos.ppo.config import PPOConfig  # noqa: E402
from shoal.rollout.actor import Decision  # noqa: E402
from shoal.rollout.draft import Draft  # noqa: E402
from shoal.rollout.streams import ACTING, stream  # noqa: E402
from shoal.testing import CountingWorld  # noqa: E402
from shoal.training import checkpoint  # noqa: E402
from shoal.training.config import EnvConfig, GoalConfig, PPORun, RunConfig  # noqa: E402
from shoal.training.loop import Progress, learn  # noqa: E402
from shoal.training.ppo import Training, threads  # noqa: E402

STEPS = 4 * 16
"""Of one update."""
SMALL = PPORun(
    envs=EnvConfig(env="CartPole-v1", n_envs=4, backend="serial"),
    ppo=PPOConfig(n_steps=16, n_epochs=2, batch_size=32, learning_rate_schedule="linear"),
    run=RunConfig(device="cpu", seed=5),
)
REMEMBERING = replace(
    SMALL,
    ppo=replace(SMALL.ppo, normalize_rewards=True, sequence_length=8),
    network=NetworkConfig(memory="lstm", memory_size=8, normalize_observations=True),
)


def normalized(config: PPORun, **network: Any) -> PPORun:
    network["normalize_observations"] = True
    return replace(
        config,
        ppo=replace(config.ppo, normalize_rewards=True),
        network=replace(config.network, **network),
    )


KINDS: dict[str, tuple[PPORun, Any]] = {
    "clipped": (normalized(SMALL), "Pendulum-v1"),
    "tanh": (normalized(SMALL, squash_actions=True), "Pendulum-v1"),
    "remembering": (REMEMBERING, "CartPole-v1"),
    "masked": (SMALL, worlds.MaskedSwitches),
    "dict": (SMALL, worlds.Described),
    "pixels": (SMALL, worlds.Picture),
}
"""What is learnt by other formulas than the plain one: its configuration and environment."""

IN_TURNS = replace(SMALL, envs=replace(SMALL.envs, overlap=True))


def weights(training: Training) -> dict[str, Any]:
    return {name: value.clone() for name, value in training.agent.state_dict().items()}


def assert_same(first: dict[str, Any], other: dict[str, Any]) -> None:
    assert first.keys() == other.keys()
    for name, value in first.items():
        assert torch.equal(value, other[name]), name


def stop_after(num_updates: int) -> Any:
    def stop(run: Progress) -> None:
        if run.num_updates == num_updates:
            run.stop("enough")

    return stop


def advance(training: Training, num_updates: int) -> None:
    with threads(1, training.agent):
        learn(training.source, training.learner, Progress([]), [stop_after(num_updates)])


def goal(config: PPORun) -> PPORun:
    return replace(config, goal=GoalConfig(total_steps=20 * STEPS))


@pytest.fixture(scope="module")
def oracle() -> dict[str, Any]:
    with Training(goal(SMALL), "CartPole-v1") as training:
        advance(training, 4)
        return weights(training)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_every_backend_gives_the_same_weights(
    setting: Setting, oracle: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting.portable:
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
    where: Any = setting.backend
    envs = replace(SMALL.envs, backend=where, num_workers=setting.num_workers)
    with Training(goal(replace(SMALL, envs=envs)), "CartPole-v1") as training:
        advance(training, 4)
        assert_same(weights(training), oracle)


@pytest.fixture(scope="module")
def oracles() -> dict[str, dict[str, Any]]:
    """The weights of every kind, once they were asked for."""
    return {}


def oracle_of(kind: str, oracles: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if kind not in oracles:
        config, env = KINDS[kind]
        with Training(goal(config), env) as training:
            before = weights(training)
            advance(training, 2)
            oracles[kind] = weights(training)
        assert any(not torch.equal(before[name], one) for name, one in oracles[kind].items())
    return oracles[kind]


@pytest.mark.parametrize(
    "setting", [Setting(name, 2) for name in ("serial", "thread", "process", "hybrid")], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_policy_learns_the_same_everywhere(
    kind: str, setting: Setting, oracles: dict[str, dict[str, Any]]
) -> None:
    config, env = KINDS[kind]
    where: Any = setting.backend
    envs = replace(config.envs, backend=where, num_workers=setting.num_workers)
    with Training(goal(replace(config, envs=envs)), env) as training:
        advance(training, 2)
        assert_same(weights(training), oracle_of(kind, oracles))


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_groups_that_step_in_turns_give_the_same_weights_everywhere(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Training(goal(IN_TURNS), "CartPole-v1") as training:
        advance(training, 3)
        wanted = weights(training)
    if setting.portable:
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
    where: Any = setting.backend
    envs = replace(IN_TURNS.envs, backend=where, num_workers=setting.num_workers)
    with Training(goal(replace(IN_TURNS, envs=envs)), "CartPole-v1") as training:
        advance(training, 3)
        assert_same(weights(training), wanted)


def test_each_group_goes_through_what_it_would_in_lock_step() -> None:
    """A slow transcription: decide about one half, then the other, then one step of all."""
    with Training(goal(IN_TURNS), "CartPole-v1") as training:
        agent = training.agent
        rollout = training.source.collect()
    halves = [slice(0, None, 2), slice(1, None, 2)]
    random = [stream(IN_TURNS.run.seed, ACTING, half) for half in range(2)]
    noise = [agent.noise(16, 2, random[half]) for half in range(2)]
    with shoal.make("CartPole-v1", 4, backend="serial", autoreset="same_step") as envs:
        observations, _ = envs.reset(seed=IN_TURNS.run.seed)
        for t in range(16):
            actions = np.empty(4, np.int64)
            assert np.array_equal(rollout.observations[0][t], observations)
            for half, rows in enumerate(halves):
                decision = agent.act((observations[rows],), None, None, noise[half][t])
                actions[rows] = decision.env_actions
                assert np.array_equal(rollout.log_probs[t, rows], decision.log_probs)
            observations, rewards, terminations, truncations, _ = envs.step(actions)
            assert np.array_equal(rollout.actions[t], actions)
            assert np.array_equal(rollout.rewards[t], rewards)
            assert np.array_equal(rollout.terminations[t], terminations)
            assert np.array_equal(rollout.truncations[t], truncations)
    assert rollout.terminations.any()


def test_another_seed_gives_other_weights(oracle: dict[str, Any]) -> None:
    with Training(goal(replace(SMALL, run=RunConfig(device="cpu", seed=6))), "CartPole-v1") as one:
        advance(one, 4)
        assert not torch.equal(
            weights(one)["network.values.layers.0.weight"], oracle["network.values.layers.0.weight"]
        )


@pytest.mark.parametrize(
    "config",
    [SMALL, REMEMBERING, replace(REMEMBERING, envs=IN_TURNS.envs)],
    ids=["plain", "remembering", "in turns"],
)
@pytest.mark.parametrize("backend", ["serial", "process", "hybrid"])
def test_a_run_that_goes_on_equals_one_that_never_stopped(
    config: PPORun, backend: Any, tmp_path: Path
) -> None:
    config = goal(replace(config, envs=replace(config.envs, backend=backend, num_workers=2)))
    file = tmp_path / "model.safetensors"
    with Training(config, "CartPole-v1") as straight:
        advance(straight, 3)
        checkpoint.write(file, straight.checkpoint())
        advance(straight, 4)
    with Training(config, "CartPole-v1") as resumed:
        resumed.resume(checkpoint.read(file))
        advance(resumed, 4)
        assert resumed.source.step == straight.source.step == 7 * STEPS
        assert resumed.source.episodes.state() == straight.source.episodes.state()
    assert_same(weights(resumed), weights(straight))


def test_an_environment_that_cannot_be_replayed_begins_anew_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, made = goal(SMALL), []

    def changing() -> CountingWorld:
        made.append(1)
        return CountingWorld(len(made), history=False)

    with Training(config, changing) as training:
        advance(training, 1)
        kept = training.checkpoint()
    with Training(config, changing) as resumed:
        resumed.resume(kept)
        assert "could not be replayed" in caplog.text
        advance(resumed, 1)
        assert resumed.source.step == 2 * STEPS


@pytest.mark.parametrize("kind", ["plain", *KINDS])
def test_what_the_learner_thinks_of_an_action_is_what_the_actor_thought(kind: str) -> None:
    config, env = KINDS.get(kind, (SMALL, "CartPole-v1"))
    with Training(goal(config), env) as training:
        advance(training, 2)
        rollout = training.source.collect()
        material = training.learner._material(rollout)
        num_steps = 0
        for batch, opinion in training.learner._opinions(material, rollout):
            log_probs, values, *_ = np.asarray(batch.numbers)
            found, judged = map(as_array, (opinion.judged.log_probs, opinion.values))
            np.testing.assert_allclose(found, log_probs, atol=1e-6, rtol=1e-5)
            np.testing.assert_allclose(judged, values, atol=1e-5, rtol=1e-5)
            num_steps += found.size
        assert num_steps >= rollout.num_steps
        assert np.ptp(rollout.log_probs) > 1e-3, "they are all the same"


def as_array(numbers: Any) -> Any:
    return numbers.detach().numpy() if isinstance(numbers, torch.Tensor) else np.asarray(numbers)


class Sparse(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Says what is possible only at the start of an episode, as a list, and infos of all shapes."""

    def reset(self, **kwargs: Any) -> Any:
        observation, info = self.env.reset(**kwargs)
        return observation, {**info, "action_mask": [True, False]}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        info["odd"] = np.zeros(int(abs(observation[0]) * 1e4) % 5)
        return observation.astype(np.float64), reward, terminated, truncated, info


def sparse() -> Any:
    return Sparse(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_masks_of_some_and_infos_of_all_shapes_survive_in_turns(backend: Any) -> None:
    envs = replace(IN_TURNS.envs, backend=backend, num_workers=2)
    with Training(goal(replace(IN_TURNS, envs=envs)), sparse) as training:
        rollout = training.source.collect()
        assert rollout.action_masks is not None
        assert (rollout.action_masks[rollout.starts] == [True, False]).all()
        assert rollout.action_masks[~rollout.starts].all()
        assert (rollout.actions[rollout.starts] == 0).all()
        assert rollout.observations[0].dtype == np.float32
        asked = training.source._play._asked
        for number, masks in enumerate((None, np.eye(2) > 0)):
            asked[number] = asked[number]._replace(masks=masks)
        arrays, _ = training.source.state()
        assert arrays["masks"].tolist() == [[True] * 2, [True, False], [True] * 2, [False, True]]


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_rollout_in_turns_that_is_broken_off_is_begun_anew(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = replace(IN_TURNS.envs, backend=backend, num_workers=2)
    with Training(goal(replace(IN_TURNS, envs=envs)), "CartPole-v1") as training:
        act, calls = training.agent.act, []

        def interrupted(*given: Any) -> Any:
            calls.append(1)
            if len(calls) == 10:
                raise KeyboardInterrupt
            return act(*given)

        monkeypatch.setattr(training.agent, "act", interrupted)
        with pytest.raises(KeyboardInterrupt):
            training.source.collect()
        rollout = training.source.collect()
        now = np.stack([one.observation[0] for one in training.envs.mementos()])
        seen = np.empty_like(now)
        for asked in training.source._play._asked.values():
            seen[asked.rows] = asked.leaves[0]
        assert np.array_equal(seen, now)
        assert rollout.valid.all()


def test_a_checkpoint_before_the_first_step_is_one_of_the_start(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with Training(goal(SMALL), "CartPole-v1") as straight:
        checkpoint.write(file, straight.checkpoint())
        advance(straight, 2)
    with Training(goal(SMALL), "CartPole-v1") as resumed:
        resumed.resume(checkpoint.read(file))
        advance(resumed, 2)
        assert_same(weights(resumed), weights(straight))


def test_steps_without_a_mask_are_recorded_as_free() -> None:
    draft, rows = Draft(4, 2), slice(None)
    seen = [np.zeros((2, 3), np.float32)]
    decision = Decision(*(np.zeros(2, np.float32) for _ in range(4)), None)
    mask = np.array([[True, False], [False, True]])
    for t, given in enumerate([None, mask, None, mask]):
        draft.see(t, rows, seen)
        draft.decide(t, rows, decision, None, given, np.zeros(2, np.bool_))
    assert draft.masks is not None
    assert draft.masks[[0, 2]].all()
    assert (draft.masks[[1, 3]] == mask).all()


def test_a_lost_step_is_kept_out_of_what_is_learnt() -> None:
    with Training(goal(SMALL), "CartPole-v1") as training:
        rollout = training.source.collect()
        lost = np.array(rollout.valid)
        lost[5, 2] = False
        material = training.learner._material(replace(rollout, valid=lost))
        whole = training.learner._material(rollout)
        others = np.flatnonzero(lost)
        assert len(material.actions) == rollout.num_steps - 1
        assert torch.equal(material.leaves[0], whole.leaves[0][others])
        assert torch.equal(material.actions, whole.actions[others])
