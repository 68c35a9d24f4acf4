"""What policies of several agents learn from, held against plain loops over the same worlds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from players import Meadow, Round

pytest.importorskip("torch")

from shoal.algos.networks import NetworkConfig
from shoal.algos.ppo.config import PPOConfig
from shoal.errors import ConfigError
from shoal.layout import Layout
from shoal.rollout.order import Tidings, arrange
from shoal.rollout.rollout import Rollout
from shoal.training.config import EnvConfig, GoalConfig, PPORun, RunConfig
from shoal.training.ppo import Training

NUM_ENVS, HORIZON, SEED = 3, 30, 7
RUN = PPORun(
    envs=EnvConfig(n_envs=NUM_ENVS, backend="serial"),
    goal=GoalConfig(total_steps=10_000),
    ppo=PPOConfig(n_steps=HORIZON, n_epochs=1, batch_size=64),
    network=NetworkConfig(hidden_sizes=(8,)),
    run=RunConfig(device="cpu", seed=SEED),
)


class Lived(NamedTuple):
    """One decision of one agent, and what it came to."""

    observation: list[Any]
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    following: list[Any]
    """What the agent saw next, the last thing it saw included."""
    mask: Any
    is_first: bool


def settings(policies: tuple[str, ...], overlap: bool = False) -> PPORun:
    return replace(RUN, envs=replace(RUN.envs, policies=policies, overlap=overlap))


class Actions:
    """What a rollout has done, agent by agent, given out in the same order."""

    def __init__(self, training: Training, rollouts: Any) -> None:
        assert training.troupe is not None
        self.rows: dict[tuple[int, int], tuple[str, Rollout, int]] = {}
        for name, share in training.troupe.shares.items():
            for env_id in range(NUM_ENVS):
                for at, agent in enumerate(share.agents.tolist()):
                    place = env_id * len(share) + at
                    self.rows[env_id, agent] = name, rollouts.parts[name], place

    def row(self, env_id: int, agent: int) -> tuple[Rollout, int]:
        _, rollout, place = self.rows[env_id, agent]
        return rollout, place


def leaves(space: Any, observation: Any) -> list[Any]:
    return [np.asarray(one) for one in Layout(space).take_apart(observation)]


def mask_in(observation: Any, info: Any) -> Any:
    for said in (observation, info):
        if isinstance(said, dict) and "action_mask" in said:
            return np.asarray(said["action_mask"]).astype(bool)
    return None


def check(training: Training, rollout: Rollout, t: int, row: int, lived: Lived, name: str) -> None:
    """Whether a row is what was lived, and is worth what the agent thinks."""
    for page, leaf in zip(rollout.observations, lived.observation, strict=True):
        np.testing.assert_allclose(page[t, row], leaf, rtol=1e-6)
    assert rollout.rewards[t, row] == np.float32(lived.reward)
    assert rollout.terminations[t, row] == lived.terminated
    assert rollout.truncations[t, row] == lived.truncated
    assert rollout.starts[t, row] == lived.is_first
    if lived.mask is not None:
        assert rollout.action_masks is not None
        assert rollout.action_masks[t, row].tolist() == lived.mask.tolist()
    if not lived.terminated:
        seen = tuple(np.asarray(one)[None] for one in lived.following)
        expected = training.agent.agents[name].value(seen, None)  # type: ignore[union-attr]
        np.testing.assert_allclose(rollout.next_values[t, row], expected[0], rtol=1e-4, atol=1e-5)


# --- teams --------------------------------------------------------------------------------------


def lived_in_meadow(env: Any, env_id: int, actions: Actions, num_steps: int) -> Any:
    """The plain loop: by agent, and time."""
    names, is_new = env.possible_agents, set(env.possible_agents)
    seen, infos = env.reset(seed=SEED + env_id)
    lived: dict[tuple[int, int], Lived] = {}
    for t in range(num_steps):
        chosen = {}
        for name in env.agents:
            rollout, row = actions.row(env_id, names.index(name))
            chosen[name] = rollout.actions[t, row]
        before, said = seen, infos
        seen, rewards, terminations, truncations, infos = env.step(chosen)
        for name, action in chosen.items():
            space = env.observation_space(name)
            lived[names.index(name), t] = Lived(
                leaves(space, before[name]),
                action,
                rewards[name],
                terminations[name],
                truncations[name],
                leaves(space, seen[name]),
                mask_in(before[name], said.get(name)),
                name in is_new,
            )
            is_new.discard(name)
        if not env.agents:
            seen, infos = env.reset()
            is_new = set(names)
    return lived


@pytest.mark.parametrize("overlap", [False, True], ids=["together", "overlapping"])
@pytest.mark.parametrize("policies", [("shared",), ("separate",), ("a=ann", "b=bob,cyd,dee")])
@pytest.mark.parametrize("masks", ["", "info", "observation"])
def test_a_team_learns_from_what_it_went_through(
    policies: tuple[str, ...], masks: str, overlap: bool
) -> None:
    make = partial(Meadow, masks=masks)
    with Training(settings(policies, overlap), make) as training:
        compare_with_meadow(training, make)


def test_agents_that_differ_learn_from_what_they_went_through() -> None:
    make = partial(Meadow, alike=False)
    with Training(settings(("shared",)), make) as training:
        assert training.troupe is not None
        assert sorted(training.troupe.shares) == ["ann", "bob", "cyd", "dee"]
        compare_with_meadow(training, make)


def compare_with_meadow(training: Training, make: Any) -> None:
    rollouts = training.source.collect()
    actions = Actions(training, rollouts)
    num_valid = 0
    for env_id in range(NUM_ENVS):
        lived = lived_in_meadow(make(), env_id, actions, HORIZON)
        num_valid += len(lived)
        for (agent, t), one in lived.items():
            name, rollout, row = actions.rows[env_id, agent]
            assert rollout.valid[t, row]
            check(training, rollout, t, row, one, name)
    assert sum(int(one.valid.sum()) for one in rollouts.parts.values()) == num_valid
    assert rollouts.num_steps == NUM_ENVS * HORIZON
    told = training.source.episodes.metrics()
    by_agent = [told[f"episode/{name}/return_mean"] for name in ("ann", "bob", "cyd", "dee")]
    assert sum(by_agent) == pytest.approx(told["episode/return_mean"])


# --- turns --------------------------------------------------------------------------------------


def lived_in_round(env: Any, env_id: int, actions: Actions, num_steps: int) -> Any:
    """The plain loop: what each agent decided and heard of, in its own order."""
    names = env.possible_agents
    env.reset(seed=SEED + env_id)
    lived: dict[int, list[Lived]] = defaultdict(list)
    number: dict[int, int] = defaultdict(int)
    waiting: dict[int, tuple[Any, ...]] = {}
    is_new = set(range(len(names)))
    for t in range(num_steps + 1):
        agent = names.index(env.agent_selection)
        observation, reward, terminated, truncated, info = env.last()
        seen = leaves(env.observation_space(names[agent]), observation)
        if agent in waiting:
            before, action, mask, first = waiting.pop(agent)
            lived[agent].append(
                Lived(before, action, reward, terminated, truncated, seen, mask, first)
            )
        if t == num_steps:
            break
        action = None
        if not (terminated or truncated):
            rollout, row = actions.row(env_id, agent)
            action = rollout.actions[number[agent], row]
            number[agent] += 1
            waiting[agent] = seen, action, mask_in(observation, info), agent in is_new
            is_new.discard(agent)
        env.step(action)
        if not env.agents:
            env.reset()
            waiting, is_new = {}, set(range(len(names)))
    return lived, number


@pytest.mark.parametrize("overlap", [False, True], ids=["together", "overlapping"])
@pytest.mark.parametrize("policies", [("shared",), ("separate",), ("a=ann", "b=bob,cyd")])
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize("masks", ["", "info"])
def test_agents_who_take_turns_learn_from_what_came_of_it(
    policies: tuple[str, ...], masks: str, overlap: bool, alike: bool
) -> None:
    if len(policies) > 1 and not alike:
        pytest.skip("agents of one policy have to be alike")
    make = partial(Round, alike=alike, masks=masks)
    with Training(settings(policies, overlap), make) as training:
        rollouts = training.source.collect()
        actions = Actions(training, rollouts)
        num_valid = 0
        for env_id in range(NUM_ENVS):
            lived, number = lived_in_round(make(), env_id, actions, HORIZON)
            for agent, each in lived.items():
                name, rollout, row = actions.rows[env_id, agent]
                num_valid += len(each)
                for k, one in enumerate(each):
                    assert rollout.valid[k, row]
                    check(training, rollout, k, row, one, name)
                assert not rollout.valid[number[agent] :, row].any()
        assert sum(int(one.valid.sum()) for one in rollouts.parts.values()) == num_valid
        assert num_valid > 0.5 * NUM_ENVS * HORIZON


def test_whoever_acts_by_chance_is_not_learnt_from() -> None:
    config = settings(("shared",))
    config = replace(config, envs=replace(config.envs, random_opponents=2 / 3))
    with Training(config, partial(Round, masks="info")) as training:
        part = training.source.collect().parts["shared"]
        valid = part.valid.reshape(len(part.valid), NUM_ENVS, 3).any(axis=0)
        assert valid.tolist() == [[True, False, False], [False, True, False], [True] * 3]
        assert part.action_masks is not None
        chosen = np.take_along_axis(part.action_masks, part.actions[..., None], axis=2)
        assert chosen[part.valid].all()
    with pytest.raises(ConfigError, match="take turns"):
        Training(config, Meadow)


def test_decisions_are_put_in_order_as_a_slow_transcription_does() -> None:
    random = np.random.default_rng(0)
    for _ in range(30):
        horizon, num_envs, num_agents = random.integers(1, 12), random.integers(1, 4), 4
        tidings = Tidings(
            random.integers(num_agents, size=(horizon + 1, num_envs)),
            random.normal(size=(horizon + 1, num_envs)).astype(np.float32),
            random.random((horizon + 1, num_envs)) < 0.1,
            random.random((horizon + 1, num_envs)) < 0.1,
            random.normal(size=(horizon + 1, num_envs)).astype(np.float32),
            random.random((horizon + 1, num_envs)) < 0.2,
        )
        agents = np.sort(random.choice(num_agents, size=2, replace=False))
        ended = tidings.terminations | tidings.truncations
        decided = np.isin(tidings.agents, agents)[:-1] & ~ended[:-1]
        values = random.normal(size=decided.shape).astype(np.float32)
        order = arrange(decided, agents, values, tidings)
        expected = slowly(decided, agents.tolist(), values, tidings)
        found = {}
        for i, (k, row) in enumerate(zip(*order.to, strict=True)):
            told = None
            if order.valid[i]:
                told = order.rewards[i], order.terminations[i], order.truncations[i]
                told = *told, order.next_values[i]
            found[int(row), int(k)] = told
        assert found == expected
        assert order.length == max((k + 1 for _, k in expected), default=0)


def slowly(decided: Any, agents: list[int], values: Any, tidings: Tidings) -> dict[Any, Any]:
    """For each agent of each environment: look for its next turn before the episode is over."""
    horizon, num_envs = decided.shape
    found: dict[Any, Any] = {}
    for env in range(num_envs):
        for at, agent in enumerate(agents):
            k = 0
            for t in range(horizon):
                if not decided[t, env] or tidings.agents[t, env] != agent:
                    continue
                told = None
                for later in range(t + 1, horizon + 1):
                    if tidings.begins[later, env]:
                        break
                    if tidings.agents[later, env] == agent:
                        told = tidings.rewards[later, env], *outcome(later, env, values, tidings)
                        break
                found[env * len(agents) + at, k] = told
                k += 1
    return found


def outcome(t: int, env: int, values: Any, tidings: Tidings) -> tuple[Any, ...]:
    ended = tidings.terminations[t, env], tidings.truncations[t, env]
    if any(ended) or t == len(values):
        return *ended, tidings.values[t, env]
    return *ended, values[t, env]
