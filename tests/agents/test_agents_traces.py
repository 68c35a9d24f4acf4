"""Teams and turns on every backend, bit for bit what plain loops over PettingZoo are told.

Observations, rewards, flags, infos, masks, and what episodes ended with; with deaths and births.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from players import Meadow, Round

from trace_of import assert_same

NUM_ENVS, STEPS, SEED = 3, 60, 2
TURNS: dict[str, Any] = {
    "alike": Round,
    "alike, masks": partial(Round, True, "info"),
    "different": partial(Round, False),
    "different, masks": partial(Round, False, "info"),
    "births": partial(Round, births=True),
    "births, different, masks": partial(Round, False, "info", births=True),
    "connect four": "pettingzoo.classic.connect_four_v3:env",
}
TEAMS: dict[str, Any] = {
    "alike": Meadow,
    "alike, masks in observations": partial(Meadow, masks="observation"),
    "different, masks in infos": partial(Meadow, False, "info"),
    "spread": "mpe2.simple_spread_v3:parallel_env",
}


def there(world: Any) -> Any:
    """What makes one environment, or a reason to skip."""
    if not isinstance(world, str):
        return world
    module, _, factory = world.partition(":")
    return getattr(pytest.importorskip(module), factory)


def info_of(infos: dict[str, Any], row: int) -> dict[str, Any]:
    """The info of one environment, out of those of all."""
    return {
        key: info_of(one, row) if isinstance(one, dict) else one[row]
        for key, one in infos.items()
        if f"_{key}" in infos and infos[f"_{key}"][row]
    }


def mask_in(observation: Any, info: dict[str, Any], count: int) -> Any:
    """What is possible, as booleans; everything where nothing is said."""
    for said in (info, observation):
        if isinstance(said, dict) and "action_mask" in said:
            return np.asarray(said["action_mask"]).astype(bool)
    return np.ones(count, bool)


def choice(t: int, env_id: int, mask: Any) -> int:
    possible = np.flatnonzero(mask)
    return int(possible[(5 * t + 3 * env_id) % len(possible)])


# --- turns --------------------------------------------------------------------------------------


class Last(NamedTuple):
    """One `last()`, and what an episode ended with in the step before it, if one did."""

    agent: str
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    mask: Any
    ended_with: Last | None

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated


def last_of(env: Any, ended_with: Last | None = None) -> Last:
    agent, (seen, reward, terminated, truncated, info) = env.agent_selection, env.last()
    mask = mask_in(seen, info, env.action_space(agent).n) & (not (terminated or truncated))
    # Environments may change what they have handed out.
    seen = {key: one.copy() for key, one in seen.items()} if isinstance(seen, dict) else seen.copy()
    return Last(agent, seen, reward, terminated, truncated, dict(info), mask, ended_with)


def plain_turns(env: Any, env_id: int) -> list[Last]:
    env.reset(seed=SEED + env_id)
    said = [last_of(env)]
    for t in range(STEPS):
        now = said[-1]
        env.step(None if now.is_over else choice(t, env_id, now.mask))
        ended_with = None if env.agents else now
        if not env.agents:
            env.reset()
        said.append(last_of(env, ended_with))
    return said


@pytest.mark.parametrize("world", TURNS.values(), ids=TURNS)
def test_turns_are_those_of_a_plain_loop(made: Any, world: Any) -> None:
    plain = [plain_turns(there(world)(), i) for i in range(NUM_ENVS)]
    envs = made("turns", world, NUM_ENVS)
    turn = envs.reset(seed=SEED)
    for t in range(STEPS + 1):
        for i, said in enumerate(plain):
            assert_turn(turn, i, said[t], envs)
        if t < STEPS:
            given = [
                choice(t, i, turn.action_masks[i]) if turn.action_masks[i].any() else 0
                for i in range(NUM_ENVS)
            ]
            alike = envs.cast.acts_alike
            turn = envs.step(given if alike else dict.fromkeys(envs.possible_agents, given))
    every = [one for said in plain for one in said]
    assert sum(one.is_over for one in every) > 5
    assert sum(one.ended_with is not None for one in every) >= 2
    assert {one.agent for one in every} == set(envs.possible_agents)


def assert_turn(turn: Any, i: int, said: Last, envs: Any) -> None:
    assert envs.possible_agents[turn.agent_ids[i]] == said.agent
    alike = envs.cast.sees_alike
    assert_same(
        row_of(turn.observations if alike else turn.observations[said.agent], i), said.observation
    )
    assert turn.rewards[i] == said.reward
    assert (turn.terminations[i], turn.truncations[i]) == (said.terminated, said.truncated)
    count = len(said.mask)
    assert_same(turn.action_masks[i, :count], said.mask)
    assert not turn.action_masks[i, count:].any()
    info = info_of(turn.infos, i)
    final, final_info = info.pop("final_obs", None), info.pop("final_info", {})
    assert_same(info, said.info)
    if said.ended_with is None:
        assert final is None
    else:
        assert envs.ended[i]
        assert_same(final if alike else final[said.ended_with.agent], said.ended_with.observation)
        assert_same(final_info, said.ended_with.info)


def row_of(values: Any, row: int) -> Any:
    """One environment's part of a batch."""
    if isinstance(values, dict):
        return {key: row_of(one, row) for key, one in values.items()}
    return values[row]


# --- teams --------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What a team of one environment is told in one step, of those who are told."""

    seen: dict[str, Any]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, Any]
    alive: list[str]
    masks: dict[str, Any]
    ended_with: Told | None


def told_of(env: Any, seen: Any, *others: Any, ended_with: Told | None = None) -> Told:
    *flags, infos = others
    masks = {
        name: mask_in(seen[name], infos.get(name, {}), env.action_space(name).n)
        for name in env.agents
    }
    return Told(seen, *(flags or ({}, {}, {})), infos, list(env.agents), masks, ended_with)


def plain_team(env: Any, env_id: int) -> list[Told]:
    said = [told_of(env, *env.reset(seed=SEED + env_id))]
    for t in range(STEPS):
        now = said[-1]
        step = env.step({name: choice(t, env_id, now.masks[name]) for name in env.agents})
        told = told_of(env, *step)
        if not env.agents:
            seen, infos = env.reset()
            begun = told_of(env, seen, infos)
            told = begun._replace(
                rewards=told.rewards,
                terminations=told.terminations,
                truncations=told.truncations,
                ended_with=told,
            )
        said.append(told)
    return said


@pytest.mark.parametrize("world", TEAMS.values(), ids=TEAMS)
def test_a_team_is_told_what_a_plain_loop_tells_it(made: Any, world: Any) -> None:
    plain = [plain_team(there(world)(), i) for i in range(NUM_ENVS)]
    envs = made("team", world, NUM_ENVS, autoreset="same_step")
    seen, infos = envs.reset(seed=SEED)
    results: Any = ({}, {}, {})
    for t in range(STEPS + 1):
        for i, said in enumerate(plain):
            assert_told(envs, i, said[t], seen, results, infos)
        if t < STEPS:
            masks = envs.action_masks
            given = {
                name: [
                    choice(t, i, masks[i, k]) if masks[i, k].any() else None
                    for i in range(NUM_ENVS)
                ]
                for k, name in enumerate(envs.possible_agents)
            }
            seen, *results, infos = envs.step(given)
    every = [one for said in plain for one in said]
    assert sum(one.ended_with is not None for one in every) > 5


def assert_told(envs: Any, i: int, said: Told, seen: Any, results: Any, infos: Any) -> None:
    names = envs.possible_agents
    assert [n for n, lives in zip(names, envs.alive[i], strict=True) if lives] == [
        n for n in names if n in said.alive
    ]
    for k, name in enumerate(names):
        if name in said.seen:
            assert_same(row_of(seen[name], i), said.seen[name], name)
        for found, expected in zip(results, said[1:4], strict=True):
            if found:
                assert found[name][i] == expected.get(name, 0), name
        mask = said.masks.get(name, np.zeros(0, bool))
        assert_same(envs.action_masks[i, k, : len(mask)], mask, name)
        assert not envs.action_masks[i, k, len(mask) :].any()
    info = info_of(infos, i)
    final, final_info = info.pop("final_obs", None), info.pop("final_info", {})
    assert_same(info, {name: one for name, one in said.infos.items() if one})
    if said.ended_with is None:
        assert final is None
    else:
        for name, last in said.ended_with.seen.items():
            assert_same(final[name], last)
        assert_same(final_info, {n: one for n, one in said.ended_with.infos.items() if one})
