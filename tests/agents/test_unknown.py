"""Agents whom nobody knows beforehand, on every backend, against a plain loop."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo")

from plain_team import row_of
from players import NAMES, Lingering, Meadow, Round

import shoal
from trace_of import assert_same

NUM_ENVS, STEPS = 3, 25


class Strangers(Meadow):
    """A meadow that does not say who may come."""

    def __init__(self) -> None:
        super().__init__(alike=False, masks="info")
        del self.possible_agents


class Guests(Round):
    """A round that does not say who takes part."""

    def __init__(self) -> None:
        super().__init__(alike=False, masks="info")
        self._names = self.possible_agents
        del self.possible_agents

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.possible_agents = self._names
        super().reset(seed, options)
        del self.possible_agents


def choice(t: int, env_id: int, mask: Any) -> int:
    """One of those that are possible."""
    possible = np.flatnonzero(mask)
    return int(possible[(5 * t + 3 * env_id) % len(possible)])


def test_a_team_of_strangers_is_told_what_a_plain_loop_tells_it(made: Any) -> None:
    envs = made("team", Strangers, NUM_ENVS, autoreset="same_step")
    plain = [Strangers() for _ in range(NUM_ENVS)]
    seen, infos = envs.reset(seed=4)
    now = [env.reset(seed=4 + i) for i, env in enumerate(plain)]
    num_ends = 0
    for t in range(STEPS):
        actions: dict[str, list[Any]] = {}
        for i, env in enumerate(plain):
            assert envs.agents[i] == env.agents
            for name in env.agents:
                assert_same(seen[name][i], now[i][0][name])
                assert infos[name][i] == now[i][1][name]
                actions.setdefault(name, [None] * NUM_ENVS)
                actions[name][i] = choice(t, i, envs.action_masks[i][name])
        seen, rewards, terminations, truncations, infos = envs.step(actions)
        for i, env in enumerate(plain):
            told = env.step({name: actions[name][i] for name in env.agents})
            for name in told[0]:
                assert rewards[name][i] == told[1][name]
                assert (terminations[name][i], truncations[name][i]) == (
                    told[2][name],
                    told[3][name],
                )
                if name in env.agents:
                    possible = told[4][name].pop("action_mask")
                    assert_same(envs.action_masks[i][name], possible.astype(bool))
                    infos[name][i].pop("action_mask")
            now[i] = told[0], told[4]
            if not env.agents:
                num_ends += 1
                assert_same(infos["final_obs"][i], told[0])
                now[i] = env.reset()
    assert num_ends


def test_a_team_that_takes_nobody_off_its_list_ends_known_or_not(made: Any, mode: str) -> None:
    known = made("team", Lingering, NUM_ENVS, autoreset=mode)
    envs = made("team", partial(Lingering, is_known=False), NUM_ENVS, autoreset=mode)
    told, expected = envs.reset(seed=4), known.reset(seed=4)
    num_ends = 0
    for t in range(STEPS):
        for i, living in enumerate(known.alive):
            there = [name for name, lives in zip(NAMES, living, strict=True) if lives]
            assert sorted(envs.agents[i]) == there
            for name in there:
                k = NAMES.index(name)
                choices = known.single_action_space(name).n
                assert_same(envs.action_masks[i][name], known.action_masks[i, k, :choices])
                assert_same(told[0][name][i], row_of(expected[0][name], i))
        num_ends += int((~known.alive.any(axis=1)).sum())
        if mode == "disabled" and not known.alive.any(axis=1).all():
            break
        actions = {name: np.full(NUM_ENVS, t % 2) for name in NAMES}
        met = dict.fromkeys(name for each in envs.agents for name in each)
        expected, told = known.step(actions), envs.step({name: actions[name] for name in met})
        for name in told[1]:
            for mine, other in zip(told[1:4], expected[1:4], strict=True):
                assert_same(mine[name], other[name])
        for i in np.flatnonzero(expected[4].get("_final_obs", ())):
            num_ends += 1
            for name, last in told[4]["final_obs"][i].items():
                assert_same(last, expected[4]["final_obs"][i][name])
    assert num_ends


def test_turns_of_strangers_are_those_of_a_plain_loop(made: Any) -> None:
    envs = made("turns", Guests, NUM_ENVS)
    plain = [Guests() for _ in range(NUM_ENVS)]
    turn = envs.reset(seed=4)
    for i, env in enumerate(plain):
        env.reset(seed=4 + i)
    num_ends = 0
    for t in range(STEPS):
        actions: list[Any] = [None] * NUM_ENVS
        ended_with = {}
        for i, env in enumerate(plain):
            seen, reward, terminated, truncated, info = env.last()
            assert envs.possible_agents[turn.agent_ids[i]] == env.agent_selection
            assert_same(turn.observations[i], seen)
            assert turn.rewards[i] == reward
            assert (turn.terminations[i], turn.truncations[i]) == (terminated, truncated)
            is_over = terminated or truncated
            possible = info["action_mask"].astype(bool) & (not is_over)
            assert_same(turn.action_masks[i], possible)
            actions[i] = None if is_over else choice(t, i, possible)
            env.step(actions[i])
            if not env.agents:
                num_ends += 1
                ended_with[i] = seen, info["time"]
                env.reset()
        turn = envs.step(actions)
        assert np.flatnonzero(envs.ended).tolist() == list(ended_with)
        for i, (last, time) in ended_with.items():
            assert_same(turn.infos["final_obs"][i], last)
            assert turn.infos["final_info"]["time"][i] == time
    assert num_ends


WRONG: list[tuple[Any, str]] = [
    (np.zeros(2, int), "expected a dict by agent"),
    ({"bob": 0}, "actions of 'bob' are 0; expected 2 rows"),
    ({"bob": [0]}, "actions of 'bob' have 1 rows; expected 2"),
    ({"bob": [0, None]}, "action of 'bob' in env 1 is None, and it is alive"),
    ({"bob": [0, 7]}, "env 1, in step .*: the action of 'bob' is 7, outside its space Discrete"),
    ({"bub": [0, 0]}, "'bub', who is none of the agents. Did you mean 'bob'"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[words[:34] for _, words in WRONG])
def test_wrong_actions_of_strangers_are_told_in_words(wrong: Any, words: str) -> None:
    with shoal.make_team(Strangers, 2, backend="serial") as envs:
        envs.reset(seed=0)
        right = {name: [0, 0] for name in envs.agents[0]}
        with pytest.raises(shoal.ContractError, match=words):
            envs.step(right | wrong if isinstance(wrong, dict) else wrong)
    with shoal.make_team(Strangers, 2, backend="serial") as envs:
        envs.reset(seed=0)
        with pytest.raises(shoal.ContractError, match="no actions for 'ann'"):
            envs.step({"bob": [0, 0]})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([0], "1 rows; expected 2"),
        (0, "are 0; expected 2 rows"),
        ([0, None], "action in env 1 is None, and it is the turn of 'ann'"),
        ([0, 7], "env 1, in step .*: the action of 'ann' is 7, outside its space"),
    ],
)
def test_wrong_actions_in_turns_of_strangers_are_told_in_words(wrong: Any, words: str) -> None:
    with shoal.make_turns(Guests, 2, backend="serial") as envs:
        envs.reset(seed=0)
        with pytest.raises(shoal.ContractError, match=words):
            envs.step(wrong)


def test_strangers_go_on_from_where_others_stand(made: Any) -> None:
    envs = made("team", Strangers, 3)
    envs.reset(seed=2)
    for t in range(4):
        envs.step({name: [t % 2] * 3 for each in envs.agents for name in each})
    assert envs.agents[0] != envs.agents[2]
    envs.branch(0, [2])
    assert envs.agents[0] == envs.agents[2]
    seen, *_ = envs.step({name: [0] * 3 for each in envs.agents for name in each})
    for name in seen:
        assert_same(seen[name][0], seen[name][2])


@pytest.mark.parametrize("kind", ["team", "turns"])
def test_there_may_be_more_strangers_and_fewer(made: Any, kind: str) -> None:
    envs = made(kind, Strangers if kind == "team" else Guests, 2, autoreset="same_step")
    envs.reset(seed=4)
    began = envs.resize(4)
    assert len(began.agent_ids if kind == "turns" else began[0]["ann"]) == 2
    envs.resize(1)
    if kind == "team":
        assert len(envs.agents) == len(envs.action_masks) == 1
        envs.step({name: [0] for name in envs.agents[0]})
    else:
        assert not envs.ended.any()
        assert len(envs.step([0]).agent_ids) == 1
