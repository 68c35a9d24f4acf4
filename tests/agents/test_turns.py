"""Agents that take turns, on every backend, against a plain loop over PettingZoo's `last()`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")

from players import NAMES, Round

import shoal
from trace_of import assert_same


def chosen(t: int, env_id: int, n: int) -> int:
    return (5 * t + 3 * env_id) % n


def actions_for(envs: Any, t: int) -> Any:
    if envs.cast.acts_alike:
        n = envs.single_action_space("ann").n
        return np.array([chosen(t, i, n) for i in range(envs.num_envs)])
    return {
        name: np.array(
            [chosen(t, i, envs.single_action_space(name).n) for i in range(envs.num_envs)]
        )
        for name in envs.possible_agents
    }


def test_who_is_not_on_turn_sees_nothing(made: Any) -> None:
    envs = made("turns", partial(Round, False), 3)
    envs.reset(seed=0)
    for t in range(60):  # some episodes, which begin with another agent than the last one
        turn = envs.step(actions_for(envs, t))
        for k, name in enumerate(envs.possible_agents):
            assert not turn.observations[name][turn.agent_ids != k].any()


def test_ends_are_told_in_every_mode(made: Any, mode: str) -> None:
    envs = made("turns", Round, 2, autoreset=mode)
    before = envs.reset(seed=0)
    for t in range(60):
        turn = envs.step(actions_for(envs, t))
        if not envs.ended.any():
            before = turn
            continue
        over = np.flatnonzero(envs.ended)
        assert (before.terminations | before.truncations)[over].all()
        if mode == "same_step":
            assert (turn.agent_ids >= 0).all()
            assert turn.infos["_final_info"].tolist() == envs.ended.tolist()
            for i in over:
                assert_same(turn.infos["final_obs"][i], before.observations[i])
                assert turn.infos["final_info"]["time"][i] == before.infos["time"][i] > 0
        else:
            assert (turn.agent_ids[over] == -1).all()
            assert not turn.rewards[over].any()
            assert_same(turn.observations[over], before.observations[over])
            assert_same(turn.infos["time"][over], before.infos["time"][over])
            if mode == "disabled":
                again = envs.reset_envs(over)
                assert again.agent_ids.tolist() == [0] * len(over)
        return
    pytest.fail("no episode ended")


def test_options_reach_the_environment_and_calls_as_well(made: Any) -> None:
    envs = made("turns", Round, 3)
    turn = envs.reset(seed=0, options=[None, {"sum": 4.0}, None])
    assert turn.observations[:, 2].tolist() == [0.0, 4.0, 0.0]
    assert envs.get_attr("sum") == (0.0, 4.0, 0.0)
    assert envs.reset_envs([2], [1], [{"sum": 9.0}]).observations[0, 2] == 9.0


def test_turns_come_as_they_are_ready(made: Any) -> None:
    envs, whole = made("turns", Round, 4), made("turns", Round, 4)
    envs.reset(seed=2)
    whole.reset(seed=2)
    for t in range(20):
        wanted = whole.step(actions_for(whole, t))
        envs.send(actions_for(envs, t))
        left = 4
        while left:
            turn = envs.recv(1)
            ids = envs.env_ids
            left -= len(ids)
            for part, want in zip(turn[:6], wanted[:6], strict=True):
                assert_same(part, want[ids])


def test_wrong_actions_are_told_in_words(made: Any) -> None:
    envs = made("turns", partial(Round, False), 2)
    envs.reset(seed=0)
    with pytest.raises(shoal.ContractError, match="expected a dict by agent"):
        envs.step(np.zeros(2, int))
    with pytest.raises(shoal.ContractError, match="action of 'ann' in env 1 is 7, outside its"):
        envs.step({name: [0, 7] for name in NAMES[:3]})
    envs.step({"ann": [0, 1], "bob": [9, None]})  # nobody else has a turn


def test_wrong_actions_of_agents_who_act_alike_are_told_in_words(made: Any) -> None:
    envs = made("turns", Round, 2)
    envs.reset(seed=0)
    for actions, words in [
        ([0, 9], "action of 'ann' in env 1 is 9, outside its space"),
        ([0, None], "action of 'ann' in env 1 is None; expected one of"),
        ([0, [1, 2]], r"action of 'ann' in env 1 is \[1, 2\]"),
        ([0], "1 rows; expected 2, one for each environment"),
        (0, "are 0; expected 2 rows"),
        (None, "are None; expected 2 rows"),
    ]:
        with pytest.raises(shoal.ContractError, match=words):
            envs.step(actions)
        with pytest.raises(shoal.ContractError, match=words):
            envs.send(actions, [0, 1])
    envs.step([0, 1])


def test_an_agent_that_has_ended_may_be_given_anything(made: Any) -> None:
    envs, usual = made("turns", Round, 3), made("turns", Round, 3)
    turn = envs.reset(seed=1)
    usual.reset(seed=1)
    num_ends = 0
    for t in range(40):
        has_ended = turn.terminations | turn.truncations
        num_ends += int(has_ended.sum())
        chosen = actions_for(envs, t)
        any_at_all = [None if ended else one for ended, one in zip(has_ended, chosen, strict=True)]
        expected = usual.step(chosen)
        turn = envs.step(any_at_all if t % 2 else np.where(has_ended, 99, chosen))
        assert_same(tuple(turn[:6]), tuple(expected[:6]))
    assert num_ends > 5


class Singles(Round):
    """Whose spaces are of float32 while observations come as float64, and rewards as arrays."""

    def __init__(self, alike: bool = True) -> None:
        super().__init__(alike)
        self._spaces = {
            name: spaces.Box(-1e6, 1e6, one.shape, np.float32) for name, one in self._spaces.items()
        }

    def last(self, observe: bool = True) -> Any:
        seen, reward, *others = super().last(observe)
        return seen, np.array([reward]), *others


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_numbers_that_are_cast_are_told_of_once(
    made: Any, alike: bool, caplog: pytest.LogCaptureFixture
) -> None:
    envs, usual = made("turns", partial(Singles, alike), 3), made("turns", partial(Round, alike), 3)
    turn, expected = envs.reset(seed=3), usual.reset(seed=3)
    for t in range(20):
        for name in envs.possible_agents:
            seen, wanted = turn.observations, expected.observations
            seen, wanted = (seen, wanted) if alike else (seen[name], wanted[name])
            assert_same(seen, wanted.astype(np.float32))
        assert_same(turn.rewards, expected.rewards)
        turn, expected = envs.step(actions_for(envs, t)), usual.step(actions_for(usual, t))
    lines = [one.getMessage() for one in caplog.records if "is cast to" in one.getMessage()]
    assert len(lines) == len(set(lines)) == (1 if alike else 3)
    assert all(line.endswith("comes as float64 and is cast to float32.") for line in lines)
