"""Players: agents that play in one environment, alone, as a team or turn by turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces

from shoal.algos.agent import Agent
from shoal.algos.company import Company
from shoal.engine.masks import mask_in
from shoal.layout import Array, Layout
from shoal.rollout.shares import Share, joined
from shoal.training.lineup import Troupe
from shoal.vector.agents.reading import nothing
from shoal.vector.agents.together import ALIVE

Gains = dict[str, float]
"""Returns by agent, where there are several."""


class Plays(Protocol):
    """What plays episodes of one environment."""

    def begin(self) -> None:
        """An episode begins: nothing is remembered."""

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        """The action for one observation, as the environment takes it."""

    def gain(self, observation: Any, reward: float) -> float:
        """What a step has brought those who are judged."""

    def gains(self) -> Gains:
        """What this episode has brought each agent by now, where there are several."""


class Chooser:
    """Chooses actions of one policy for some observations at a time."""

    def __init__(self, agent: Agent, deterministic: bool, random: torch.Generator) -> None:
        self.agent, self._deterministic, self._random = agent, deterministic, random

    def __call__(
        self, leaves: Sequence[Array], state: Array | None, masks: Array | None
    ) -> tuple[Array, Array | None]:
        """Actions as environments take them, and what is remembered."""
        agent, given = self.agent, tuple(leaves)
        if self._deterministic:
            return agent.act_best(given, state, masks)
        (noise,) = agent.noise(1, len(given[0]), self._random)
        decision = agent.act(given, state, masks, noise)
        return decision.env_actions, decision.state


class Player:
    """An agent that plays in one environment, remembering what it must."""

    def __init__(self, agent: Agent, *, deterministic: bool = True, seed: int = 0) -> None:
        self._agent = agent
        self._choose = Chooser(agent, deterministic, torch.Generator().manual_seed(seed))
        self.begin()

    def begin(self) -> None:
        """An episode begins: nothing is remembered."""
        self._state = self._agent.initial_state(1)

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        """The action for one observation, as the environment takes it."""
        masks, central = _mask(observation, info or {}), self._agent.central
        if central is not None:  # which only the critic looks at
            observation = (observation, np.zeros(central.shape, np.float32))
        leaves = _batch_of_one(self._agent.layout, observation)
        actions, self._state = self._choose(leaves, self._state, masks)
        return actions[0]

    def gain(self, observation: Any, reward: float) -> float:
        return reward

    def gains(self) -> Gains:
        return {}


class Team:
    """The policies of a team: in an environment as the engine steps it, each for its agents."""

    def __init__(
        self, company: Company, troupe: Troupe, layout: Layout, deterministic: bool, seed: int
    ) -> None:
        self._cast, self._shares, self._layout = troupe.cast, troupe.shares, layout
        random = torch.Generator().manual_seed(seed)
        self._choosers = {
            name: Chooser(agent, deterministic, random) for name, agent in company.agents.items()
        }
        self.begin()

    def begin(self) -> None:
        self._states = {
            name: one.agent.initial_state(len(self._shares[name]))
            for name, one in self._choosers.items()
        }
        self._gains = np.zeros(len(self._cast))

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        told = self._layout.assemble(_batch_of_one(self._layout, observation))
        alive = told["flags"][:, ALIVE].astype(np.bool_)
        actions = []
        for name, share in self._shares.items():
            seen = share.seen_at_once(told["observations"])
            masks = share.possible(told.get("masks"), alive)
            done, self._states[name] = self._choosers[name](seen, self._states[name], masks)
            actions.append(done)
        together = joined(self._cast, list(self._shares.values()), actions)
        return together[0] if self._cast.acts_alike else tuple(one[0] for one in together)

    def gain(self, observation: Any, reward: float) -> float:
        self._gains += observation["rewards"]
        return reward

    def gains(self) -> Gains:
        return dict(zip(map(str, self._cast.names), self._gains.tolist(), strict=True))


class Turns:
    """The policies of agents who take turns.

    `is_against_random`: they play one seat, another one in each episode, against random players,
    and only what that seat gets counts.
    """

    def __init__(
        self,
        company: Company,
        troupe: Troupe,
        layout: Layout,
        deterministic: bool,
        seed: int,
        is_against_random: bool,
    ) -> None:
        self._cast, self._layout = troupe.cast, layout
        random = torch.Generator().manual_seed(seed)
        agents = company.agents
        self._played_by: dict[int, tuple[Chooser, Share]] = {
            int(k): (Chooser(agents[name], deterministic, random), share)
            for name, share in troupe.shares.items()
            for k in share.agents
        }
        self._random = np.random.default_rng(seed) if is_against_random else None
        self._seat = -1
        self.begin()

    def begin(self) -> None:
        self._seat = (self._seat + 1) % len(self._cast)
        self._states = {
            k: choose.agent.initial_state(1) for k, (choose, _) in self._played_by.items()
        }
        self._gains = np.zeros(len(self._cast))

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        told = self._layout.assemble(_batch_of_one(self._layout, observation))
        k = int(told["agent"][0])
        done = nothing(self._cast.action_spaces[k], 1)[0]
        if not told["flags"].any():
            done = self._chosen(told, k)
        if self._cast.acts_alike:
            return done
        each = [nothing(space, 1)[0] for space in self._cast.action_spaces]
        each[k] = done
        return tuple(each)

    def _chosen(self, told: Mapping[str, Any], k: int) -> Any:
        choose, share = self._played_by[k]
        masks = None
        if "mask" in told and share.choices:
            masks = told["mask"][:, : share.choices].astype(np.bool_)
        if self._random is not None and k != self._seat:
            return any_of(share.action_space, masks, self._random)
        seen = told["observation"] if self._cast.sees_alike else told["observation"][k]
        leaves = share.layout.take_apart(seen)
        actions, self._states[k] = choose(leaves, self._states[k], masks)
        return actions[0]

    def gain(self, observation: Any, reward: float) -> float:
        k = int(observation["agent"])
        if k >= 0:
            self._gains[k] += reward
        return reward if self._random is None or k == self._seat else 0.0

    def gains(self) -> Gains:
        if self._random is not None:  # most of it is what random players got
            return {}
        return dict(zip(map(str, self._cast.names), self._gains.tolist(), strict=True))


class Members:
    """The agents of a team or of a game, each asked for by its name: what `shoal.load` returns."""

    def __init__(self, company: Company, troupe: Troupe) -> None:
        agents, names = company.agents, troupe.cast.names
        self._each = {
            str(names[k]): Player(agents[policy])
            for policy, share in troupe.shares.items()
            for k in share.agents
        }

    def __getitem__(self, agent: str) -> Player:
        return self._each[agent]

    def begin(self) -> None:
        """An episode begins: nobody remembers anything."""
        for one in self._each.values():
            one.begin()

    def act(self, observation: Any, info: dict[str, Any] | None = None, *, agent: str) -> Any:
        """What an agent does about what it sees."""
        return self._each[agent].act(observation, info)


def player_of(
    agent: Agent | Company,
    troupe: Troupe | None,
    space: spaces.Space[Any],
    *,
    deterministic: bool = True,
    seed: int = 0,
    against: str = "itself",
) -> Plays:
    """Who plays episodes with this; `space` is what the environment observes.

    `against`: whom, where agents take turns; auto is random.
    """
    if isinstance(agent, Agent):
        return Player(agent, deterministic=deterministic, seed=seed)
    assert troupe is not None
    layout = Layout(space)
    if troupe.takes_turns:
        is_random = against != "itself"
        return Turns(agent, troupe, layout, deterministic, seed, is_random)
    return Team(agent, troupe, layout, deterministic, seed)


def _batch_of_one(layout: Layout, observation: Any) -> list[Array]:
    parts = layout.take_apart(observation)
    return [
        np.asarray(part, dtype=leaf.dtype)[None]
        for leaf, part in zip(layout.leaves, parts, strict=True)
    ]


def _mask(observation: Any, info: dict[str, Any]) -> Array | None:
    mask = mask_in(observation, info)
    return None if mask is None else np.asarray(mask, dtype=np.bool_).reshape(1, -1)


def any_of(space: Any, masks: Array | None, random: np.random.Generator) -> Any:
    """A random action that is possible."""
    if masks is None or not hasattr(space, "n"):
        space.seed(int(random.integers(2**31)))
        return space.sample()
    return space.start + random.choice(np.flatnonzero(masks[0]))
