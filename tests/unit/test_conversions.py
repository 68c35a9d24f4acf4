"""Are the same agents the same, whether they act in turn, at once or as one?"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env, data_equivalence

import shoal
from shoal.testing import check_env as check_our_way

pytest.importorskip("pettingzoo")

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of modules that it loads itself
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
    from pettingzoo.test.example_envs import generated_agents_env_v0, generated_agents_parallel_v0

from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import (
    aec_to_parallel,
    parallel_to_aec,
    turn_based_aec_to_parallel,
)

from shoal.envs import FlattenMultiAgentWrapper, GridWorldEnvMultiAgent, as_aec, as_parallel
from shoal.envs.conversions.team import TurnsAtOnce
from shoal.envs.conversions.turns import TeamInTurns
from shoal.envs.gridworld.world import World

RIGHT, UP, LEFT, DOWN, STAY = range(5)


def advised(test: Any) -> Any:
    """Without PettingZoo's advice about names and spaces."""
    for text in (
        "Observation is not a NumPy array",
        "Observation space for each agent probably should be",
        "Agents have different observation space sizes",
        "The class of observation spaces is different",
        "Observations are different shapes",
        "Observation numpy array is all zeros",
        "Action mask numpy array is all zeros",
        "This environment does not have possible_agents defined",
        "No agents present",
        "Agent was given .* but was dead last turn",  # it appeared and ended in one step
        "We recommend agents to be named",
        "The base environment",
        "Agent's m.* action space value is",
        "Agent's m.* observation space value is",
    ):
        test = pytest.mark.filterwarnings(f"ignore:{text}")(test)
    return test


class Script:
    """Who appears and who ends in each step, by chance; observations say who, when and with what.

    Six agents may appear, never twice.
    """

    possible_agents = [f"player_{index}" for index in range(6)]  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.np_random = np.random.default_rng()
        box = spaces.Box(-1000, 1000, (3,), np.float64)
        self._spaces = {name: (box, spaces.Discrete(4)) for name in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> Any:
        return self._spaces[agent][1]

    def render(self) -> None: ...

    def close(self) -> None: ...

    def _begin(self, seed: int | None) -> list[str]:
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.count = 0
        self.heard = dict.fromkeys(self.possible_agents, 0)
        self.unborn = self.possible_agents[3:]
        return self.possible_agents[:3]

    def _observation(self, agent: str) -> Any:
        number = self.possible_agents.index(agent)
        return np.array([number, self.count, self.heard[agent]], np.float64)

    def _fate(self) -> str:
        return str(self.np_random.choice(["live", "live", "live", "terminate", "truncate"]))

    def _is_birth(self) -> bool:
        return bool(self.unborn) and bool(self.np_random.random() < 0.3)


class ScriptedTeam(Script, ParallelEnv):
    """All at once."""

    metadata = {"name": "scripted_team_v0", "render_modes": []}  # noqa: RUF012

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = self._begin(seed)
        return self._seen(self.agents), {agent: {"count": 0} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert set(actions) == set(self.agents)
        self.count += 1
        for agent, action in actions.items():
            self.heard[agent] += int(action)
        fates = {agent: self._fate() for agent in self.agents}
        born = [self.unborn.pop(0)] if self._is_birth() else []
        everyone = [*self.agents, *born]
        self.agents = [agent for agent in everyone if fates.get(agent, "live") == "live"]
        return (
            self._seen(everyone),
            {agent: 0.5 * self.heard[agent] + self.count for agent in everyone},
            {agent: fates.get(agent) == "terminate" for agent in everyone},
            {agent: fates.get(agent) == "truncate" for agent in everyone},
            {agent: {"count": self.count} for agent in everyone},
        )

    def _seen(self, agents: list[str]) -> Any:
        return {agent: self._observation(agent) for agent in agents}


class ScriptedTurns(Script, AECEnv):
    """In turn: anybody may end or appear at any turn, and each turn may pay anybody."""

    metadata = {"name": "scripted_turns_v0", "render_modes": []}  # noqa: RUF012

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = []
        self.rewards, self._cumulative_rewards = {}, {}
        self.terminations, self.truncations, self.infos = {}, {}, {}
        for agent in self._begin(seed):
            self._add(agent)
        self.agent_selection = self.agents[0]

    def observe(self, agent: str) -> Any:
        return self._observation(agent)

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._clear_rewards()
        self._cumulative_rewards[agent] = 0
        self.count += 1
        self.heard[agent] += int(action)
        if self._is_birth():
            self._add(self.unborn.pop(0))
        living = [
            one for one in self.agents if not (self.terminations[one] or self.truncations[one])
        ]
        whose = str(self.np_random.choice(living))
        self.rewards[whose] = self.count + 0.5 * self.heard[agent]
        ends, fate = str(self.np_random.choice(living)), self._fate()
        self.terminations[ends] = fate == "terminate"
        self.truncations[ends] = fate == "truncate"
        self._accumulate_rewards()
        self._select_after(agent)

    def _select_after(self, agent: str) -> None:
        place = self.agents.index(agent)
        order = [*self.agents[place + 1 :], *self.agents[: place + 1]]
        living = [one for one in order if not (self.terminations[one] or self.truncations[one])]
        self.agent_selection = (living or order)[0]
        self._deads_step_first()

    def _add(self, agent: str) -> None:
        self.agents.append(agent)
        self.rewards[agent] = self._cumulative_rewards[agent] = 0
        self.terminations[agent] = self.truncations[agent] = False
        self.infos[agent] = {}


class LateTurns(ScriptedTurns):
    """Who has ended is stepped with None only when its turn comes."""

    def _select_after(self, agent: str) -> None:
        self.agent_selection = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]

    def _was_dead_step(self, action: Any) -> None:
        agent = self.agent_selection
        self._select_after(agent)
        for each in (self.rewards, self._cumulative_rewards, self.infos):
            del each[agent]
        del self.terminations[agent], self.truncations[agent]
        self.agents.remove(agent)
        self._clear_rewards()


def grid(**kwargs: Any) -> GridWorldEnvMultiAgent:
    return GridWorldEnvMultiAgent(**{"size": 4, "agents": 3, "max_steps": 12} | kwargs)


def placed(*cells: tuple[int, int], target: tuple[int, int], **kwargs: Any) -> Any:
    """What puts hunters and target on these cells at every reset."""

    class Placed(GridWorldEnvMultiAgent):
        def reset(self, seed: int | None = None, options: Any = None) -> None:
            super().reset(seed, options)
            positions = dict(zip(self.possible_agents, cells, strict=True))
            self.world = World(self.config.size, (), positions, target)

    return Placed(**{"agents": len(cells), "target_config": {"moves": False}} | kwargs)


def play_team(env: Any, seed: int, num_steps: int = 60) -> list[Any]:
    """Actions by chance; everything that reset and step return, and who is left."""
    chance = np.random.default_rng(seed)
    trace: list[Any] = [(*env.reset(seed=seed), list(env.agents))]
    while env.agents and len(trace) < num_steps:
        actions = {
            agent: _choose(env.action_space(agent), chance, trace[-1][0].get(agent))
            for agent in sorted(env.agents)
        }
        trace.append((*env.step(actions), sorted(env.agents)))
    return trace


def play_turns(env: Any, seed: int, num_turns: int = 200) -> list[Any]:
    chance = np.random.default_rng(seed)
    env.reset(seed=seed)
    trace = []
    for agent in env.agent_iter(num_turns):
        observation, reward, terminated, truncated, info = env.last()
        trace.append((agent, observation, reward, terminated, truncated, dict(info)))
        is_over = terminated or truncated
        env.step(None if is_over else _choose(env.action_space(agent), chance, observation))
    return trace


def _choose(space: Any, chance: np.random.Generator, observation: Any) -> Any:
    if isinstance(space, spaces.Box):
        return chance.uniform(space.low, space.high).astype(space.dtype)
    mask = observation.get("action_mask") if isinstance(observation, dict) else None
    allowed = np.arange(space.n) if mask is None or not mask.any() else np.flatnonzero(mask)
    return int(chance.choice(allowed))


def assert_same(first: list[Any], other: list[Any]) -> None:
    assert len(first) == len(other)
    for number, (one, another) in enumerate(zip(first, other, strict=True)):
        for part, counterpart in zip(one, another, strict=True):
            same = data_equivalence(_comparable(part), _comparable(counterpart))
            assert same, (number, part, counterpart)


def _comparable(part: Any) -> Any:
    """Numbers and dictionaries of one type each."""
    if isinstance(part, dict):
        return {key: _comparable(value) for key, value in part.items()}
    return float(part) if isinstance(part, int | float | np.number) else part


def parallelizable(env: Any) -> Any:
    """With the promise that PettingZoo's own conversion asks for."""
    env.metadata = env.metadata | {"is_parallelizable": True}
    return env


# --- turns, seen as a team ---------------------------------------------------------


@advised
@pytest.mark.parametrize(
    "make", [grid, ScriptedTurns, generated_agents_env_v0.env, lambda: as_aec(ScriptedTeam())]
)
def test_turns_as_a_team_pass_pettingzoos_test(make: Callable[[], Any]) -> None:
    parallel_api_test(TurnsAtOnce(make(), "cycle"), num_cycles=60)


@pytest.mark.parametrize("make", [grid, ScriptedTurns])
def test_turns_as_a_team_keep_their_seed(make: Callable[[], Any]) -> None:
    parallel_seed_test(lambda: as_parallel(make()), num_cycles=30)
    assert_same(play_team(as_parallel(make()), 3), play_team(as_parallel(make()), 3))


@pytest.mark.parametrize("seed", range(3))
def test_turns_as_a_team_are_what_pettingzoo_makes_of_them_where_it_can(seed: int) -> None:
    kwargs: dict[str, Any] = {"no_target": True, "intrinsic": True}
    theirs = aec_to_parallel(parallelizable(grid(**kwargs)))
    assert_same(play_team(as_parallel(grid(**kwargs)), seed), play_team(theirs, seed))


def test_particles_as_a_team_are_what_pettingzoo_makes_of_them() -> None:
    world = pytest.importorskip("mpe2.simple_spread_v3")
    mine, theirs = as_parallel(world.env(max_cycles=8)), world.parallel_env(max_cycles=8)
    trace = play_team(mine, 5)
    assert len(trace) == 9
    assert_same(trace, play_team(theirs, 5))


def test_an_end_in_the_middle_of_a_cycle_stops_nobody() -> None:
    env = as_parallel(placed((0, 0), (3, 4), (1, 3), target=(4, 4)))
    env.reset(seed=0)
    observations, rewards, terminations, truncations, infos = env.step(
        {"hunter_0": UP, "hunter_1": RIGHT, "hunter_2": RIGHT}
    )
    assert env.agents == ["hunter_0", "hunter_2"]
    assert terminations == {"hunter_0": False, "hunter_1": True, "hunter_2": False}
    assert not any(truncations.values())
    assert rewards == {"hunter_0": -0.01, "hunter_1": 1.0, "hunter_2": 0.5}
    assert {agent: seen["agent"].tolist() for agent, seen in observations.items()} == {
        "hunter_0": [0, 1],
        "hunter_1": [4, 4],
        "hunter_2": [2, 3],
    }
    assert set(infos) == {"hunter_0", "hunter_1", "hunter_2"}
    observations, *_ = env.step({"hunter_0": UP, "hunter_2": UP})
    assert set(observations) == {"hunter_0", "hunter_2"}


@pytest.mark.parametrize("make", [ScriptedTurns, LateTurns])
def test_nothing_that_happens_in_turns_is_lost_for_the_team(make: Callable[[], Any]) -> None:
    """Rewards, ends and births of scripted episodes, against what the turns themselves say."""
    num_births = num_ends = 0
    for seed in range(40):
        env = make()
        team = as_parallel(env)
        seen, _ = team.reset(seed=seed)
        known, ended, paid = set(seen), set(), 0.0
        total = _watch_rewards(env)
        while team.agents:
            before = set(team.agents)
            observations, rewards, terminations, truncations, _ = team.step(
                dict.fromkeys(team.agents, 1)
            )
            paid += sum(rewards.values())
            assert before <= set(observations)
            assert not ended & set(observations)
            num_births += len(set(observations) - known)
            known |= set(observations)
            now = {agent for agent in observations if terminations[agent] or truncations[agent]}
            assert set(team.agents) == set(observations) - now
            ended |= now
        assert ended == known
        assert paid == pytest.approx(sum(total))
        num_ends += len(ended)
    assert num_births > 20
    assert num_ends > 120


def _watch_rewards(env: ScriptedTurns) -> list[float]:
    """All rewards that the turns of an environment give from here on."""
    given: list[float] = []
    accumulate = env._accumulate_rewards

    def watch() -> None:
        given.extend(env.rewards.values())
        accumulate()

    env._accumulate_rewards = watch  # type: ignore[method-assign]
    return given


class Skipping(ScriptedTurns):
    """The order of turns is a, b, a, c; nobody ends or appears."""

    def _fate(self) -> str:
        return "live"

    def _is_birth(self) -> bool:
        return False

    def _select_after(self, agent: str) -> None:
        order = [self.agents[index] for index in (0, 1, 0, 2)]
        self.agent_selection = order[self.count % 4]


def test_a_step_ends_before_anyone_acts_twice() -> None:
    env = Skipping()
    team = as_parallel(env)
    team.reset(seed=0)
    heard = []
    for _ in range(4):
        team.step(dict.fromkeys(team.agents, 1))
        heard.append([env.heard[agent] for agent in team.agents])
    assert heard == [[1, 1, 0], [2, 1, 1], [3, 2, 1], [4, 2, 2]]


def test_an_agent_that_stays_after_its_end_is_told_by_name() -> None:
    class Undead(ScriptedTurns):
        def _was_dead_step(self, action: Any) -> None: ...

    team = as_parallel(Undead())
    with pytest.raises(shoal.ContractError, match=r"has ended, but step\(None\) did not remove it"):
        play_team(team, 1)


def test_an_agent_that_vanishes_is_told_by_name() -> None:
    class Vanishing(Skipping):
        def _select_after(self, agent: str) -> None:
            if self.count == 2:
                for of_all in (self.rewards, self.terminations, self.truncations, self.infos):
                    del of_all["player_1"]
                self.agents.remove("player_1")
            self.agent_selection = self.agents[self.count % len(self.agents)]

    with pytest.raises(shoal.ContractError, match="'player_1' has disappeared"):
        play_team(as_parallel(Vanishing()), 1)


def test_every_living_agent_needs_an_action() -> None:
    team = as_parallel(grid())
    with pytest.raises(shoal.ContractError, match="call reset first"):
        team.step({})
    team.reset(seed=0)
    with pytest.raises(shoal.ContractError, match="no action for 'hunter_1'"):
        team.step({"hunter_0": STAY, "hunter_2": STAY})


# --- games of moves that answer each other -------------------------------------------


@pytest.fixture
def connect_four(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    pytest.importorskip("pygame")
    return pytest.importorskip("pettingzoo.classic.connect_four_v3")


@advised
def test_a_game_goes_on_one_move_a_step(connect_four: Any) -> None:
    parallel_api_test(as_parallel(connect_four.env(), "turn"), num_cycles=60)
    mine = play_team(as_parallel(connect_four.env(), "turn"), 4)
    for number, (*_, infos, agents) in enumerate(mine[:-1]):
        active = [agent for agent, info in infos.items() if info.pop("active")]
        assert active == [f"player_{number % 2}"]
        assert agents == ["player_0", "player_1"]
    *_, infos, agents = mine[-1]
    assert not any(info.pop("active") for info in infos.values())
    assert agents == []
    theirs = play_team(turn_based_aec_to_parallel(connect_four.raw_env()), 4)
    for *_, infos, _ in theirs:
        for info in infos.values():
            info.pop("active_agent", None)
    assert_same(mine, theirs)
    assert sorted(mine[-1][1].values()) == [-1, 1]


def test_only_the_active_agent_needs_an_action(connect_four: Any) -> None:
    game = as_parallel(connect_four.env(), "turn")
    game.reset(seed=0)
    observations, *_ = game.step({"player_0": 3})
    assert observations["player_1"]["observation"].sum() == 1
    with pytest.raises(shoal.ContractError, match="no action for 'player_1'"):
        game.step({"player_0": 3})


# --- a team, seen as turns ---------------------------------------------------------------


@advised
@pytest.mark.parametrize(
    "make",
    [ScriptedTeam, generated_agents_parallel_v0.parallel_env, lambda: as_parallel(grid())],
)
def test_a_team_in_turns_passes_pettingzoos_test(make: Callable[[], Any]) -> None:
    api_test(TeamInTurns(make()), num_cycles=60)


def test_a_team_in_turns_keeps_its_seed() -> None:
    seed_test(lambda: as_aec(ScriptedTeam()), num_cycles=30)


@pytest.mark.parametrize("seed", range(10))
def test_a_team_in_turns_is_what_pettingzoo_makes_of_it(seed: int) -> None:
    mine = play_turns(as_aec(ScriptedTeam()), seed)
    assert_same(mine, play_turns(parallel_to_aec(ScriptedTeam()), seed))


def test_particles_in_turns_are_what_pettingzoo_makes_of_them() -> None:
    world = pytest.importorskip("mpe2.simple_adversary_v3")
    kwargs: dict[str, Any] = {"max_cycles": 6, "continuous_actions": True}
    mine = play_turns(as_aec(as_parallel(world.env(**kwargs))), 2)
    assert_same(mine, play_turns(world.env(**kwargs), 2))
    mine = play_turns(TeamInTurns(world.parallel_env(**kwargs)), 2)
    assert_same(mine, play_turns(parallel_to_aec(TurnsAtOnce(world.env(**kwargs), "cycle")), 2))


@pytest.mark.parametrize("seed", range(10))
def test_there_and_back_is_the_same_team(seed: int) -> None:
    there_and_back = TurnsAtOnce(TeamInTurns(ScriptedTeam()), "cycle")
    assert_same(play_team(there_and_back, seed), play_team(ScriptedTeam(), seed))


def test_there_and_back_is_no_conversion_at_all() -> None:
    team, turns = ScriptedTeam(), ScriptedTurns()
    assert as_parallel(as_aec(team)) is team
    assert as_aec(as_parallel(turns)) is turns
    assert as_parallel(team) is team
    assert as_aec(turns) is turns


def test_an_agent_that_a_team_drops_is_truncated_with_its_last_observation() -> None:
    class Silent(ScriptedTeam):
        def _fate(self) -> str:
            return "live"

        def step(self, actions: Any) -> Any:
            results = super().step(actions)
            if self.count == 2:
                self.agents.remove("player_1")
                for part in results:
                    del part["player_1"]
            return results

    trace = play_turns(as_aec(Silent()), 0, num_turns=8)
    ends = [(agent, observation, *rest) for agent, observation, *rest in trace if any(rest[1:3])]
    ((agent, observation, reward, terminated, truncated, _),) = ends
    assert (agent, reward, terminated, truncated) == ("player_1", 0, False, True)
    assert observation[1] == 1


@pytest.mark.parametrize("convert", [as_parallel, as_aec])
def test_what_is_no_environment_is_refused(convert: Callable[[Any], Any]) -> None:
    with pytest.raises(shoal.ConfigError, match="expected a PettingZoo"):
        convert(gymnasium.make("CartPole-v1"))


def test_an_unknown_kind_of_step_is_refused() -> None:
    with pytest.raises(shoal.ConfigError, match=r"each_step is 'cycles'.*'cycle'"):
        as_parallel(grid(), "cycles")  # type: ignore[arg-type]


# --- the whole team as one ---------------------------------------------------------------


FLAT: dict[str, Callable[[], Any]] = {
    "turns": lambda: FlattenMultiAgentWrapper(grid()),
    "pictures": lambda: FlattenMultiAgentWrapper(grid(render_mode="rgb_array")),
    "one number": lambda: FlattenMultiAgentWrapper(grid(), flatten_actions=True),
    "team": lambda: FlattenMultiAgentWrapper(ScriptedTeam()),
    "births": lambda: FlattenMultiAgentWrapper(ScriptedTurns()),
}


@pytest.fixture(params=FLAT, ids=str)
def flat(request: pytest.FixtureRequest) -> FlattenMultiAgentWrapper:
    return FLAT[request.param]()


@pytest.mark.filterwarnings("ignore:.*Not able to test alternative render modes")
def test_a_flat_team_passes_gymnasiums_check(flat: FlattenMultiAgentWrapper) -> None:
    check_env(flat, skip_render_check=flat.render_mode is None)


def test_a_flat_team_passes_the_check_of_stable_baselines(flat: FlattenMultiAgentWrapper) -> None:
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(flat, warn=False, skip_render_check=flat.render_mode is None)


def test_a_flat_team_passes_our_own_check(flat: FlattenMultiAgentWrapper) -> None:
    report = check_our_way(flat)
    assert report.ok, str(report)


def test_every_agent_is_controlled_in_every_step() -> None:
    env = FlattenMultiAgentWrapper(placed((0, 0), (2, 2), (4, 0), target=(0, 4), fov=3))
    env.reset(seed=0)
    size = 2 + 9
    for actions, cells in [
        ([UP, LEFT, STAY], [(0, 1), (1, 2), (4, 0)]),
        ([RIGHT, DOWN, LEFT], [(1, 1), (1, 1), (3, 0)]),
    ]:
        observation, *_ = env.step(np.array(actions))
        found = [tuple(observation[start : start + 2]) for start in range(0, 3 * size, size)]
        if actions[0] == RIGHT:  # the second one cannot go where the first one stands
            cells[1] = (1, 2)
        assert found == cells
        assert observation[3 * size :].tolist() == [1, 1, 1]


def test_an_observation_holds_those_of_all_agents_in_their_order() -> None:
    world = grid(agents=[{"fov": 3}, {"fov": 5}], show_target_coords=True)
    env = FlattenMultiAgentWrapper(world)
    observation, _ = env.reset(seed=2)
    parts = [
        spaces.flatten(world.observation_space(name), world.observe(name))
        for name in ("hunter_0", "hunter_1")
    ]
    assert observation.tolist() == [*parts[0], *parts[1], 1, 1]
    assert observation.dtype == np.float32


def test_rewards_are_summed_and_told_by_agent() -> None:
    env = FlattenMultiAgentWrapper(placed((0, 0), (3, 4), (1, 3), target=(4, 4)))
    _, info = env.reset(seed=0)
    assert info["rewards"] == dict.fromkeys(env.team.possible_agents, 0.0)
    _, reward, _, _, info = env.step([UP, RIGHT, RIGHT])
    assert info["rewards"] == {"hunter_0": -0.01, "hunter_1": 1.0, "hunter_2": 0.5}
    assert reward == pytest.approx(1.49)
    assert info["alive"] == {"hunter_0": True, "hunter_1": False, "hunter_2": True}
    _, reward, *_, info = env.step([UP, STAY, STAY])
    assert info["rewards"]["hunter_1"] == 0
    assert reward == pytest.approx(0.49)


def test_who_has_terminated_is_zeros_and_its_actions_do_nothing() -> None:
    env = FlattenMultiAgentWrapper(placed((0, 0), (3, 4), target=(4, 4), fov=3))
    env.reset(seed=0)
    for action in (RIGHT, LEFT):
        observation, *_ = env.step([STAY, action])
        assert not observation[11:22].any()
        assert observation[22:].tolist() == [1, 0]
        assert observation in env.observation_space


def test_all_caught_it_is_a_termination() -> None:
    env = FlattenMultiAgentWrapper(placed((4, 3), (3, 4), target=(4, 4)))
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step([STAY, RIGHT])
    assert not terminated
    observation, _, terminated, truncated, _ = env.step([UP, STAY])
    assert (terminated, truncated) == (True, False)
    assert not observation.any()
    with pytest.raises(shoal.ContractError, match="call reset first"):
        env.step([STAY, STAY])
    assert env.reset()[0].any()


def test_some_were_truncated_is_a_truncation_with_its_last_observation() -> None:
    env = FlattenMultiAgentWrapper(placed((0, 0), (3, 4), target=(4, 4), fov=3, max_steps=2))
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step([UP, RIGHT])
    assert not terminated
    assert not truncated
    observation, _, terminated, truncated, info = env.step([UP, STAY])
    assert (terminated, truncated) == (False, True)
    assert observation[:2].tolist() == [0, 2]
    assert not observation[11:22].any()
    assert observation[22:].tolist() == [1, 0]
    assert info["alive"] == {"hunter_0": False, "hunter_1": False}


def test_a_truncation_before_the_last_end_counts() -> None:
    class Two(ScriptedTeam):
        possible_agents = ScriptedTeam.possible_agents[:2]

        def _begin(self, seed: int | None) -> list[str]:
            super()._begin(seed)
            self.unborn = []
            return list(self.possible_agents)

        def _fate(self) -> str:
            fates = {(1, 2): "truncate", (1, 1): "live", (2, 1): "terminate"}
            self.asked = getattr(self, "asked", {})
            self.asked[self.count] = self.asked.get(self.count, 0) + 1
            return fates[self.count, self.asked[self.count]]

    env = FlattenMultiAgentWrapper(Two())
    env.reset(seed=0)
    assert env.step([0, 0])[2:4] == (False, False)
    assert env.step([0, 0])[2:4] == (False, True)


def test_an_end_of_both_kinds_is_a_termination() -> None:
    class Both(ScriptedTeam):
        def step(self, actions: Any) -> Any:
            observations, rewards, _, _, infos = super().step(actions)
            self.agents = []
            ended = dict.fromkeys(observations, True)
            return observations, rewards, ended, dict(ended), infos

    env = FlattenMultiAgentWrapper(Both())
    env.reset(seed=0)
    assert env.step([0] * 6)[2:4] == (True, False)


def test_each_episode_has_an_end_of_its_own() -> None:
    env = FlattenMultiAgentWrapper(placed((0, 0), (3, 4), target=(4, 4), max_steps=1))
    env.reset(seed=0)
    assert env.step([STAY, STAY])[2:4] == (False, True)
    env.reset(seed=0)
    env.env.world.positions["hunter_0"] = (4, 3)
    assert env.step([UP, RIGHT])[2:4] == (True, False)


def test_zeros_of_the_dead_lie_in_the_space() -> None:
    class High(ScriptedTeam):
        def __init__(self) -> None:
            super().__init__()
            high = spaces.Box(np.array([5, 5, 5]), np.array([9, 9, 9]), dtype=np.float64)
            low = spaces.Box(np.array([-9, -9, -9]), np.array([-5, -5, -5]), dtype=np.float64)
            for number, (agent, (_, actions)) in enumerate(self._spaces.items()):
                self._spaces[agent] = (low if number % 2 else high, actions)

    space = FlattenMultiAgentWrapper(High()).observation_space
    assert np.zeros(24, np.float32) in space
    assert space.low[:6].tolist() == [0, 0, 0, -9, -9, -9]
    assert space.high[:6].tolist() == [9, 9, 9, 0, 0, 0]


def test_who_appears_is_shown_and_acts() -> None:
    env = FlattenMultiAgentWrapper(ScriptedTeam())
    counts = set()
    for seed in range(10):
        _, info = env.reset(seed=seed)
        while any(info["alive"].values()):
            before = info["alive"]
            observation, _, _, _, info = env.step([1] * 6)
            appeared = [name for name, lives in info["alive"].items() if lives > before[name]]
            counts.add(len(appeared))
            for name in appeared:
                index = env.team.possible_agents.index(name)
                assert observation[3 * index] == index
                assert observation[18 + index] == 1
    assert counts == {0, 1}


# --- actions of all kinds --------------------------------------------------------------


class Listening(ParallelEnv):
    """Remembers the actions it is given."""

    metadata = {"name": "listening_v0", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, *each: Any, masks: Any = None) -> None:
        self.possible_agents = [f"player_{index}" for index in range(len(each))]
        self._actions = dict(zip(self.possible_agents, each, strict=True))
        self._box = spaces.Box(0, 1, (1,), np.float32)
        self._masks = masks

    def observation_space(self, agent: str) -> Any:
        return self._box

    def action_space(self, agent: str) -> Any:
        return self._actions[agent]

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return self._seen(), self._infos()

    def step(self, actions: Any) -> Any:
        self.heard = list(actions.values())
        nobody = dict.fromkeys(self.agents, False)
        return self._seen(), dict.fromkeys(self.agents, 0.0), nobody, nobody, self._infos()

    def _seen(self) -> Any:
        return {agent: np.zeros(1, np.float32) for agent in self.agents}

    def _infos(self) -> Any:
        masks = self._masks or [None] * len(self.agents)
        return {
            agent: {} if mask is None else {"action_mask": np.array(mask, np.int8)}
            for agent, mask in zip(self.agents, masks, strict=True)
        }


def test_discrete_actions_become_choices_from_zero() -> None:
    env = Listening(spaces.Discrete(3), spaces.Discrete(4, start=-2))
    flat = FlattenMultiAgentWrapper(env)
    flat.reset()
    assert flat.action_space == spaces.MultiDiscrete([3, 4])
    flat.step(np.array([2, 3]))
    assert env.heard == [2, 1]


def test_discrete_actions_become_one_number() -> None:
    env = Listening(spaces.Discrete(3), spaces.Discrete(4, start=-2), spaces.Discrete(2))
    flat = FlattenMultiAgentWrapper(env, flatten_actions=True)
    flat.reset()
    assert flat.action_space == spaces.Discrete(24)
    heard = set()
    for action in range(24):
        flat.step(action)
        assert all(
            space.contains(one) for space, one in zip(env._actions.values(), env.heard, strict=True)
        )
        heard.add(tuple(env.heard))
    assert len(heard) == 24


def test_boxes_become_one_box() -> None:
    wide, low = spaces.Box(-2, 3, (2, 2), np.float32), spaces.Box(0, 1, (1,), np.float32)
    env = Listening(wide, low)
    flat = FlattenMultiAgentWrapper(env, flatten_actions=True)
    flat.reset()
    assert flat.action_space == spaces.Box(
        np.array([-2, -2, -2, -2, 0], np.float32), np.array([3, 3, 3, 3, 1], np.float32)
    )
    flat.step(np.array([1, 2, 3, 0, 0.5], np.float32))
    assert [one.tolist() for one in env.heard] == [[[1, 2], [3, 0]], [0.5]]
    with pytest.raises(shoal.ContractError, match=r"shape \(4,\); expected \(5,\)"):
        flat.step(np.zeros(4, np.float32))


def test_other_actions_become_a_tuple_or_are_refused() -> None:
    each = spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32)
    env = Listening(*each)
    flat = FlattenMultiAgentWrapper(env)
    flat.reset()
    assert flat.action_space == spaces.Tuple(each)
    flat.step((1, np.array([0.5], np.float32)))
    assert env.heard[0] == 1
    with pytest.raises(shoal.ConfigError, match="all Discrete or all Box"):
        FlattenMultiAgentWrapper(env, flatten_actions=True)


@pytest.mark.parametrize("action", ["one more", -1, 10**6, None, 1.5, [1, 2]])
def test_one_number_outside_all_combinations_is_told_in_words(action: Any) -> None:
    flat = FlattenMultiAgentWrapper(grid(), flatten_actions=True)
    count = flat.action_space.n  # type: ignore[attr-defined]
    flat.reset(seed=0)
    with pytest.raises(shoal.ContractError, match=f"from 0 to {count - 1}"):
        flat.step(count if action == "one more" else action)
    flat.step(count - 1)


def test_a_choice_outside_an_agents_space_is_told_in_words() -> None:
    flat = FlattenMultiAgentWrapper(grid())
    flat.reset(seed=0)
    actions = flat.action_space.sample()
    actions[-1] = 5
    with pytest.raises(shoal.ContractError, match="one choice for each agent, counted from 0"):
        flat.step(actions)


@pytest.mark.parametrize("action", [[1], [1, 2, 3], 1])
def test_too_few_and_too_many_actions_are_refused(action: Any) -> None:
    flat = FlattenMultiAgentWrapper(Listening(spaces.Discrete(3), spaces.Discrete(4)))
    flat.reset()
    with pytest.raises(shoal.ContractError, match="one part for each of 2 agents"):
        flat.step(action)


def test_too_many_combinations_are_refused() -> None:
    env = Listening(*[spaces.Discrete(10)] * 20)
    with pytest.raises(shoal.ConfigError, match="more than a Discrete can count"):
        FlattenMultiAgentWrapper(env, flatten_actions=True)


def test_masks_are_joined() -> None:
    masks = [[1, 0], None, [0, 0, 1]]
    env = Listening(spaces.Discrete(2), spaces.Discrete(2), spaces.Discrete(3), masks=masks)
    choices = FlattenMultiAgentWrapper(env)
    _, info = choices.reset()
    assert info["action_mask"].tolist() == [1, 0, 1, 1, 0, 0, 1]
    numbers = FlattenMultiAgentWrapper(env, flatten_actions=True)
    _, info = numbers.reset()
    for action in np.flatnonzero(info["action_mask"]):
        numbers.step(action)
        assert env.heard in ([0, 0, 2], [0, 1, 2])
    assert info["action_mask"].sum() == 2


def test_masks_in_observations_are_joined_and_nobody_is_left_without_a_choice(
    connect_four: Any,
) -> None:
    env = FlattenMultiAgentWrapper(as_parallel(connect_four.env(), "turn"))
    env.reset(seed=0)
    for _ in range(6):
        *_, info = env.step([3, 3])
    assert info["action_mask"].tolist() == [1, 1, 1, 0, 1, 1, 1] + [1] * 7


def test_a_team_that_does_not_name_its_agents_is_refused() -> None:
    with pytest.raises(shoal.ConfigError, match="possible_agents"):
        FlattenMultiAgentWrapper(generated_agents_parallel_v0.parallel_env())


# --- many of them ------------------------------------------------------------------------


def trace_of(envs: Any, num_steps: int = 40) -> list[Any]:
    observations, _ = envs.reset(seed=11)
    trace = [observations.copy()]
    envs.action_space.seed(5)
    for _ in range(num_steps):
        results = envs.step(envs.action_space.sample())
        trace += [part.copy() for part in results[:4]]
        trace.append(results[4]["rewards"]["hunter_1"].copy())
    return trace


def test_flat_teams_step_together_alike_on_every_backend() -> None:
    def make() -> Any:
        return FlattenMultiAgentWrapper(grid())

    traces = []
    for backend in ("serial", "process"):
        with shoal.make(
            make, 3, backend=backend, num_workers=2 if backend == "process" else 1
        ) as e:
            traces.append(trace_of(e))
    for one, other in zip(*traces, strict=True):
        assert np.array_equal(one, other)


def test_a_flat_team_can_branch_because_its_generator_is_known() -> None:
    def make() -> Any:
        return FlattenMultiAgentWrapper(grid(size=8, max_steps=100))

    with shoal.make(make, 2, backend="serial") as envs:
        envs.reset(seed=3)
        envs.reset()  # from where the generators are now, which differ
        stay = np.full((2, 3), STAY)
        for _ in range(5):
            envs.step(stay)
        envs.branch(0, [1])
        for _ in range(5):
            observations, *_ = envs.step(stay)
            assert np.array_equal(observations[0], observations[1])
