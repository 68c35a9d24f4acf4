"""The grid world as a PettingZoo environment (AEC: agents act one after another)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv

from shoal.envs.gridworld.config import RENDER_MODES, GridWorldConfig, Hunter
from shoal.envs.gridworld.picture import draw
from shoal.envs.gridworld.window import Window
from shoal.envs.gridworld.world import ACTIONS, FIRST_VISIT, World, reward, scatter
from shoal.errors import ContractError, shown

Observation = dict[str, npt.NDArray[Any]]


class GridWorldEnvMultiAgent(AECEnv):  # type: ignore[misc, unused-ignore]
    """Hunters on a square grid, who take turns to catch a target that moves by chance.

    The arguments are those of `GridWorldConfig`, which explains them.

    - A *cycle* is one turn of every hunter that still hunts. The target moves once after every
      full cycle. After `max_steps` cycles all who still hunt are truncated.
    - Actions: 0 right, 1 up, 2 left, 3 down, 4 stay. Walls, obstacles and other hunters block.
    - A hunter that steps onto the target has caught it, is terminated and leaves the grid; the
      others hunt on.
    - Observations: `agent` is the hunter's own (x, y); `obstacles_fov` what is around it (0 empty,
      1 obstacle or outside of the grid, 2 another hunter, 3 target), rows from the top downwards;
      with `show_target_coords` there is also `target`, its (x, y).
    - The reward belongs to whoever has moved: 1 for the catch; else -lambda_fov in the target's
      box; else 1 - lambda_fov with the target in sight; else -0.01. With `intrinsic`, 0.025 more on
      a cell that this hunter has not been on before.

    All chance comes from `np_random`, which `reset(seed=...)` makes anew.
    """

    # Not a ClassVar: PettingZoo declares it as an attribute of the instance.
    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "gridworld_v0",
        "render_modes": list(RENDER_MODES),
        "render_fps": 5,
        # PettingZoo's conversion allows ends only at the end of a cycle; `as_parallel` does not.
        "is_parallelizable": False,
    }

    def __init__(
        self,
        size: int = 5,
        max_steps: int = 500,
        render_mode: str | None = None,
        *,
        agents: int | Sequence[Mapping[str, Any]] = 2,
        target_config: Mapping[str, Any] | None = None,
        enable_obstacles: bool = True,
        num_obstacles: int = 0,
        fov: int = 5,
        lambda_fov: float = 0.5,
        intrinsic: bool = False,
        show_target_coords: bool = False,
        no_target: bool = False,
        show_fov_display: bool = False,
    ) -> None:
        super().__init__()
        self.config = config = GridWorldConfig(
            size=size,
            max_steps=max_steps,
            render_mode=render_mode,
            agents=agents,
            target_config=target_config,
            enable_obstacles=enable_obstacles,
            num_obstacles=num_obstacles,
            fov=fov,
            lambda_fov=lambda_fov,
            intrinsic=intrinsic,
            show_target_coords=show_target_coords,
            no_target=no_target,
            show_fov_display=show_fov_display,
        )
        self.render_mode = config.render_mode
        self._hunters = {hunter.name: hunter for hunter in config.hunters}
        self._tells_target = config.show_target_coords and config.target is not None
        self.possible_agents = list(self._hunters)
        self.agents: list[str] = []
        self.action_spaces = {name: spaces.Discrete(len(ACTIONS)) for name in self._hunters}
        self.observation_spaces = {
            name: self._observation_space(hunter) for name, hunter in self._hunters.items()
        }
        self.np_random, _ = seeding.np_random()
        self.num_cycles = 0
        self._turns: list[str] = []
        """Who is still to act in this cycle, in order."""
        self._window: Window | None = None

    @classmethod
    def from_config(cls, config: GridWorldConfig) -> GridWorldEnvMultiAgent:
        """As this configuration says, which may come from a file."""
        return cls(**{name: getattr(config, name) for name in config.__dataclass_fields__})

    def observation_space(self, agent: str) -> spaces.Dict:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode; without a seed, chance goes on where it was. No options are known."""
        if seed is not None:
            self.np_random, _ = seeding.np_random(seed)
        self.world: World = scatter(self.config, self.np_random)
        self.num_cycles = 0
        self.agents = list(self.possible_agents)
        self._turns = list(self.agents)
        self.agent_selection = self._turns[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._show()

    def observe(self, agent: str) -> Observation:
        fov = self._hunters[agent].fov
        observation: Observation = {
            "agent": np.array(self.world.positions[agent]),
            "obstacles_fov": self.world.view(agent, fov),
        }
        if self._tells_target:
            observation["target"] = np.array(self.world.target)
        return observation

    def step(self, action: int | None) -> None:
        """One turn of `agent_selection`; one that is terminated or truncated takes only None."""
        if not self.agents:
            raise ContractError("step was called while nobody hunts: call reset first.")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._clear_rewards()
        self._cumulative_rewards[agent] = 0.0
        self._act(agent, action)
        self._pass_on(agent)
        self._accumulate_rewards()
        self._deads_step_first()
        self._show()

    def render(self) -> npt.NDArray[np.uint8] | None:
        """A picture (uint8 [height, width, 3]) with "rgb_array"; "human" draws at every turn."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() shows nothing: make this environment with render_mode.")
            return None
        if not hasattr(self, "world"):
            raise ContractError("there is nothing to render yet: call reset first.")
        picture = draw(self.world, self.config)
        if self.render_mode == "rgb_array":
            return picture
        if self._window is None:
            self._window = Window("Grid world", self.metadata["render_fps"])
        self._window.show(picture)
        return None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def _act(self, agent: str, action: Any) -> None:
        if not self.action_spaces[agent].contains(action):
            meanings = ", ".join(f"{number} {name}" for number, name in enumerate(ACTIONS))
            raise ContractError(
                f"{agent} was given the action {shown(action)}; expected one of {meanings}."
            )
        is_new = self.world.move(agent, int(action))
        self.rewards[agent] = self._worth(agent, is_new)
        if self.world.has_caught(agent):
            self.terminations[agent] = True
            self.world.leave(agent)

    def _worth(self, agent: str, is_new: bool) -> float:
        target = self.config.target
        box = target.box if target is not None else 1
        worth = reward(self.world, agent, self._hunters[agent].fov, box, self.config.lambda_fov)
        return worth + FIRST_VISIT * (is_new and self.config.intrinsic)

    def _pass_on(self, agent: str) -> None:
        """It is the next one's turn, in this cycle or in a new one."""
        self._turns.remove(agent)
        if not self._turns:
            self._end_cycle()
        if self._turns:
            self.agent_selection = self._turns[0]

    def _end_cycle(self) -> None:
        self.num_cycles += 1
        target = self.config.target
        if target is not None and target.moves:
            self.world.move_target(self.np_random, target.move_probability)
        self._turns = [agent for agent in self.agents if not self.terminations[agent]]
        if self.num_cycles >= self.config.max_steps:
            self.truncations.update(dict.fromkeys(self._turns, True))

    def _show(self) -> None:
        if self.render_mode == "human":
            self.render()

    def _observation_space(self, hunter: Hunter) -> spaces.Dict:
        position = spaces.Box(0, self.config.size - 1, (2,), np.int64)
        view = spaces.Box(0, 3, (hunter.fov, hunter.fov), np.int8)
        parts: dict[str, spaces.Space[Any]] = {"agent": position, "obstacles_fov": view}
        if self._tells_target:
            parts["target"] = spaces.Box(0, self.config.size - 1, (2,), np.int64)
        return spaces.Dict(parts)
