"""Training of several agents: who has which policy, and that a run repeats, goes on and is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from players import NAMES, Meadow, Round

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from shoal.algos.networks import ActorCritic, NetworkConfig  # noqa: E402
from shoal.algos.ppo.config import PPOConfig  # noqa: E402
from shoal.errors import ConfigError  # noqa: E402
from shoal.training import checkpoint  # noqa: E402
from shoal.training.config import EnvConfig, GoalConfig, PPORun, RunConfig  # noqa: E402
from shoal.training.lineup import assign  # noqa: E402
from shoal.training.loop import Progress, learn  # noqa: E402
from shoal.training.ppo import Training, threads  # noqa: E402
from shoal.vector.agents.cast import Cast  # noqa: E402

RUN = PPORun(
    envs=EnvConfig(n_envs=4, backend="serial", policies=("separate",)),
    goal=GoalConfig(total_steps=100_000),
    ppo=PPOConfig(n_steps=12, n_epochs=2, batch_size=32, normalize_rewards=True),
    network=NetworkConfig(hidden_sizes=(8,), normalize_observations=True),
    run=RunConfig(device="cpu", seed=5),
)
REMEMBERING = replace(
    RUN,
    ppo=replace(RUN.ppo, sequence_length=4),
    network=replace(RUN.network, memory="gru", memory_size=6),
)
WORLDS = {"team": partial(Meadow, masks="info"), "turns": partial(Round, masks="info")}


def advance(training: Training, num_updates: int) -> None:
    def stop(run: Progress) -> None:
        if run.num_updates >= num_updates:
            run.stop("enough")

    with threads(1, training.agent):
        learn(training.source, training.learner, Progress(), [stop])  # type: ignore[arg-type]


def weights(training: Training) -> dict[str, Any]:
    return {name: one.clone() for name, one in training.agent.state_dict().items()}


def assert_same(first: dict[str, Any], other: dict[str, Any]) -> None:
    assert first.keys() == other.keys()
    for name, value in first.items():
        assert torch.equal(value, other[name]), name


def trained(config: PPORun, world: Any, num_updates: int = 3) -> dict[str, Any]:
    with Training(config, world) as training:
        before = weights(training)
        advance(training, num_updates)
        after = weights(training)
    moved = [name for name, value in after.items() if not torch.equal(value, before[name])]
    assert any("network" in name for name in moved)
    return after


# --- runs repeat --------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [RUN, REMEMBERING], ids=["plain", "remembering"])
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_weights_are_the_same_wherever_environments_run(world: Any, config: PPORun) -> None:
    elsewhere = replace(config, envs=replace(config.envs, backend="process", num_workers=2))
    assert_same(trained(config, world), trained(elsewhere, world))


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_killed_worker_changes_nothing(world: Any) -> None:
    config = replace(RUN, envs=replace(RUN.envs, backend="process", num_workers=2))
    with Training(config, world) as training:
        advance(training, 1)
        os.kill(training.envs._pool.workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        advance(training, 2)
        assert training.envs.stats()["replays"] > 0
        found = weights(training)
    assert_same(found, trained(RUN, world))


@pytest.mark.parametrize("overlap", [False, True], ids=["together", "overlapping"])
@pytest.mark.parametrize("config", [RUN, REMEMBERING], ids=["plain", "remembering"])
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_run_goes_on_exactly_from_its_checkpoint(
    world: Any, config: PPORun, overlap: bool, tmp_path: Path
) -> None:
    config = replace(config, envs=replace(config.envs, overlap=overlap))
    file = tmp_path / "model.safetensors"
    with Training(config, world) as straight:
        advance(straight, 2)
        checkpoint.write(file, straight.checkpoint())
        advance(straight, 2)
        told = straight.source.episodes.metrics()
        with Training(config, world) as resumed:
            resumed.resume(checkpoint.read(file))
            advance(resumed, 2)
            assert_same(weights(resumed), weights(straight))
            assert resumed.source.episodes.metrics() == told


# --- who plays whom -----------------------------------------------------------------------------


def cast(*sizes: int) -> Cast:
    seen = tuple(spaces.Box(-1.0, 1.0, (size,)) for size in sizes)
    return Cast(tuple(NAMES[: len(sizes)]), seen, (spaces.Discrete(2),) * len(sizes))


@pytest.mark.parametrize(
    ("sizes", "policies", "expected"),
    [
        ((2, 2, 2), ["shared"], {"shared": [0, 1, 2]}),
        ((2, 3, 2), ["shared"], {"ann": [0, 2], "bob": [1]}),
        ((2, 2), ["separate"], {"ann": [0], "bob": [1]}),
        ((2, 2, 2), ["x=ann,cyd", "y=bob"], {"x": [0, 2], "y": [1]}),
        ((2, 2, 2), ["x=a*", "y=[bc]*"], {"x": [0], "y": [1, 2]}),
    ],
)
def test_agents_are_given_policies(
    sizes: Sequence[int], policies: list[str], expected: dict[str, list[int]]
) -> None:
    assert assign(cast(*sizes), policies) == expected


@pytest.mark.parametrize(
    ("sizes", "policies", "words"),
    [
        ((2, 2), ["x=ann"], ["no policy", "'bob'"]),
        ((2, 2), ["x=ann,bob", "y=bob"], ["more than one policy", "'bob'"]),
        ((2, 2), ["x=ann,bab"], ["'bab'", "Did you mean 'bob'"]),
        ((2, 3), ["x=*"], ["'ann'", "'bob'", "(2,)", "(3,)"]),
        ((2, 2), ["sharred"], ["'sharred'", "shared, separate"]),
        ((2, 2), ["x=ann", "x=bob"], ["'x' twice", "x=agent,agent"]),
    ],
)
def test_what_cannot_be_is_said(
    sizes: Sequence[int], policies: list[str], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        assign(cast(*sizes), policies)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3)], ids=["alike", "different"])
def test_policies_that_would_be_called_the_same_are_refused(sizes: tuple[int, int]) -> None:
    seen = tuple(spaces.Box(-1.0, 1.0, (size,)) for size in sizes)
    players = Cast(("a-1", "a_1"), seen, (spaces.Discrete(2),) * 2)
    with pytest.raises(ConfigError, match="'a-1' and 'a_1' would both be called 'a_1'"):
        assign(players, ["separate"])
    assert assign(players, ["x=a-1", "y=a_1"]) == {"x": [0], "y": [1]}


class Methods(Meadow):
    """Agents called as methods of PyTorch's modules are."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["train", "update", "eval"]
        self._spaces = dict.fromkeys(self.possible_agents, self._spaces["ann"])
        self._actions = dict.fromkeys(self.possible_agents, self._actions["ann"])

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, np.zeros(2, np.float32)), {}

    def step(self, actions: Any) -> Any:
        seen = {name: np.full(2, one, np.float32) for name, one in actions.items()}
        self.agents = []
        flags = dict.fromkeys(seen, True), dict.fromkeys(seen, False)
        return seen, {name: float(one) for name, one in actions.items()}, *flags, {}


@pytest.mark.parametrize(
    "policies", [("separate",), ("update=train", "keys=eval,update")], ids=["separate", "rules"]
)
def test_policies_may_be_called_as_methods_are(policies: tuple[str, ...], tmp_path: Path) -> None:
    config = replace(RUN, envs=replace(RUN.envs, policies=policies))
    file = tmp_path / "model.safetensors"
    with Training(config, Methods) as training:
        advance(training, 2)
        checkpoint.write(file, training.checkpoint())
        names = set(training.agent.agents)  # type: ignore[union-attr]
        assert names == {"train", "update", "eval"} or names == {"update", "keys"}
        with Training(config, Methods) as resumed:
            resumed.resume(checkpoint.read(file))
            assert_same(weights(resumed), weights(training))


def test_weights_are_kept_by_the_names_that_older_checkpoints_have() -> None:
    with Training(RUN, Meadow) as training:
        company = training.agent
        older = torch.nn.ModuleDict(company.agents)  # type: ignore[union-attr]
        assert set(company.state_dict()) == {f"_members.{name}" for name in older.state_dict()}


def test_agents_whom_nobody_knows_beforehand_are_refused() -> None:
    class Nobody(Meadow):
        def __init__(self) -> None:
            super().__init__()
            del self.possible_agents

    with pytest.raises(ConfigError, match="no possible_agents"):
        Training(RUN, Nobody)


@pytest.mark.parametrize("policies", [("separate",), ("a=agent_*",)])
def test_policies_are_for_several_agents(policies: tuple[str, ...]) -> None:
    config = replace(RUN, envs=replace(RUN.envs, policies=policies))
    with pytest.raises(ConfigError, match="policies is for several agents"):
        Training(config, "CartPole-v1")


# --- a critic that sees all ---------------------------------------------------------------------


def test_a_central_critic_sees_all_and_its_actor_its_own() -> None:
    shared = replace(RUN, envs=replace(RUN.envs, policies=("shared",)))
    central = replace(shared, ppo=replace(RUN.ppo, central_critic=True))
    with Training(central, Meadow) as training:
        (agent,) = training.agent.agents.values()  # type: ignore[union-attr]
        assert agent.central.shape == (4 * 2,)
        part = training.source.collect().parts["shared"]
        own, every = part.observations
        stacked = own.reshape(len(own), 4, 4, 2)  # time, environment, agent, what it sees
        assert np.array_equal(every.reshape(len(own), 4, 4, 8)[:, :, 0], stacked.reshape(12, 4, 8))
        row = own[:1, 0], every[:1, 0]
        for other, is_same in ((row[1] + 1.0, False), (row[1], True)):
            one, two = agent.act_best(row, None, None), agent.act_best((row[0], other), None, None)
            assert np.array_equal(one[0], two[0])
            values = agent.value(row, None), agent.value((row[0], other), None)
            assert np.array_equal(*values) == is_same


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_central_gradients_by_numpy_are_those_of_autograd(memory: Any, tmp_path: Path) -> None:
    """A network that tanh layers make plain, and the same as a module that nobody looks into."""
    network = replace(RUN.network, memory=memory, normalize_observations=False)
    config = replace(RUN, network=network, ppo=replace(RUN.ppo, central_critic=True))

    def own(space: Any, size: int) -> Any:
        return ActorCritic(space, size, network, central=8)

    found = []
    for make_network in (None, own):
        with Training(config, Meadow, make_network) as training:
            advance(training, 2)
            found.append(weights(training))
    plain, autograd = found
    assert plain.keys() == autograd.keys()
    for name, value in plain.items():
        assert torch.allclose(value, autograd[name], atol=1e-5), name


def test_a_central_critic_is_for_teams() -> None:
    config = replace(RUN, ppo=replace(RUN.ppo, central_critic=True))
    with pytest.raises(ConfigError, match="take turns"):
        Training(config, Round)
    with pytest.raises(ConfigError, match="has one"):
        Training(config, "CartPole-v1")


# --- what is learnt from is what was done -------------------------------------------------------


@pytest.mark.parametrize("central", [False, True], ids=["own", "central"])
@pytest.mark.parametrize("policies", [("shared",), ("separate",), ("x=ann,cyd", "y=[bd]*")])
@pytest.mark.parametrize("config", [RUN, REMEMBERING], ids=["plain", "remembering"])
@pytest.mark.parametrize("masks", ["", "info"], ids=["free", "masked"])
@pytest.mark.parametrize("kind", ["team", "turns"])
def test_learners_find_decisions_as_probable_as_they_were_when_made(
    kind: str, masks: str, config: PPORun, policies: tuple[str, ...], central: bool
) -> None:
    if central and kind == "turns":
        pytest.skip("a central critic is for teams")
    world = partial(Meadow if kind == "team" else Round, masks=masks)
    config = replace(
        config,
        envs=replace(config.envs, policies=policies, overlap=masks == ""),
        ppo=replace(config.ppo, central_critic=central),
    )
    with Training(config, world) as training, threads(1, training.agent):
        training.learner.update(training.source.collect())  # weights and scales like no others
        rollouts, num_decisions = training.source.collect(), 0
        for name, part in rollouts.parts.items():
            learner = training.learner._each[name]  # type: ignore[union-attr]
            for batch, opinion in learner._opinions(learner._material(part), part):
                log_probs, values, *_, valid = (np.asarray(one) for one in batch.numbers)
                counts = valid > 0
                found = np.asarray(opinion.judged.log_probs), np.asarray(opinion.values)
                np.testing.assert_allclose(found[0][counts], log_probs[counts], atol=2e-5)
                np.testing.assert_allclose(found[1][counts], values[counts], atol=2e-5)
                num_decisions += int(counts.sum())
        assert num_decisions == sum(int(part.valid.sum()) for part in rollouts.parts.values()) > 30


# --- from start to end --------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_run_leaves_agents_that_can_be_asked(world: Any, tmp_path: Path) -> None:
    run = shoal.train(
        "ppo",
        env=world,
        n_envs=2,
        total_steps=48,
        n_steps=12,
        batch_size=16,
        policies=("x=ann", "y=[bcd]*"),
        run_dir=tmp_path,
        calibrate=False,
        tensorboard=False,
    )
    env = world()
    env.reset(seed=1)
    members = shoal.load(run.folder)
    for name in ("ann", "bob"):
        seen = env.observation_space(name).sample()
        mask = np.zeros(env.action_space(name).n, np.int8)
        mask[1] = 1
        assert members.act(seen, {"action_mask": mask}, agent=name) == 1
        assert members[name].act(seen) in env.action_space(name)
    found = shoal.evaluate(run.folder, env=world, episodes=4, seed=run.summary["steps"])
    again = shoal.evaluate(run.folder, env=world, episodes=4, seed=run.summary["steps"])
    assert found == again
    assert (run.folder / "curves.png").exists()


def test_only_the_seat_that_plays_against_random_ones_is_judged(tmp_path: Path) -> None:
    run = shoal.train(
        "ppo", env=Round, n_envs=2, total_steps=48, n_steps=12, run_dir=tmp_path, calibrate=False
    )
    alone = shoal.evaluate(run.folder, env=Round, episodes=6)
    itself = shoal.evaluate(run.folder, env=Round, episodes=6, against="itself")
    assert not alone.by_agent
    assert sum(itself.by_agent.values()) == pytest.approx(itself.mean)
    assert alone.mean < itself.mean  # rewards are positive here, and three agents get them
