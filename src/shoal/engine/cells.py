"""Cells: environments in their rows. Where an episode ends, and what then, is written here only.

A cell owns one environment (`Cell`) or one vector environment of several rows (`BatchedCell`). It
writes observations, infos and the flags of an end into its rows, and returns rewards to the worker,
which writes those once per batch. What the three modes do at an episode's end:

    next_step   report the last observation; the step after resets, whatever its action
    same_step   keep the last observation in its own row, reset at once, report the new one
    disabled    report the last observation; stepping again before a reset is an error

A rebuilt environment is *restored*: its running episode is replayed up to where it was, or its loss
is reported by its next step, as a truncation with the last known observation and no reward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from shoal.engine import generators
from shoal.engine.commands import Called, Episode, Recovery, ResetArgs
from shoal.engine.infos import InfoWriter
from shoal.engine.keep import kept
from shoal.engine.retrace import difference, number, retrace, takes_options
from shoal.engine.rows import Rows
from shoal.errors import ConfigError, ContractError
from shoal.layout import Array, Layout, Note, Writer
from shoal.seeding import Seed

RESTARTED = {"restarted": True}
"""The info of a step that reports the loss of an episode."""


_RESET_FIRST = (
    "the episode is over and autoreset is disabled. Reset it first, for example with "
    'reset(options={"reset_mask": terminations | truncations}).'
)

_RESET_TOGETHER = (
    "envs {} to {} are in one vector environment, which had to be rebuilt: none of them can be "
    "reset alone before all have been told. Reset all of them, or step first."
)


Lane = tuple[
    "Cell", Callable[[Any], Any], memoryview | None, Callable[[Any], None] | None, int, int
]
"""A cell, the step of its environment, its row (if whatever fits may be copied into it), what else
writes an observation (if that is all there is to do about one), its number and a slot."""


class EpisodeOver(ContractError):
    """Stepped on after an episode's end, where nothing resets by itself."""


class Shut:
    """Stands where an environment was closed and could not be built again."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def step(self, action: Any) -> Any:
        raise RuntimeError("this environment was closed after a failure and not built again.")

    def reset(self, **_: Any) -> Any:
        return self.step(None)

    def close(self) -> None:
        pass


class Desk(NamedTuple):
    """What cells write to: the rows of the pool and the infos and notes of this worker."""

    rows: Rows
    infos: InfoWriter
    note: Note
    stamp: Callable[[], None]
    """Tells that a reset begins, for a time limit is that of one step or one reset."""
    mode: AutoresetMode
    check_finite: bool
    flagged: set[int]
    """Slots in which an end was flagged."""
    final_scalars: dict[int, Any]
    """Last observations that are plain numbers, as they came: a row would change their type."""
    generators: dict[int, Any]
    """States of generators before a reset that do not fit into a row."""

    def carry_over(self, env_id: int, slot: int) -> None:
        """Take the last known observation, which lies in the other slot, along into this one."""
        for ring in self.rows.rings:
            ring[slot, env_id] = ring[1 - slot, env_id]

    def flag(self, env_id: int, slot: int, terminated: bool, truncated: bool) -> None:
        """An episode has ended. (The worker has taken back the flags of the step before.)"""
        self.flagged.add(slot)
        if terminated:
            self.rows.flag_bytes[slot][env_id] = 1
        if truncated:
            self.rows.flag_bytes[slot][self.rows.shape.num_envs + env_id] = 1

    def keep_as_final(self, env_id: int, slot: int) -> None:
        """Make the last known observation the last one of its episode."""
        for ring, final in zip(self.rows.rings, self.rows.finals, strict=True):
            final[env_id] = ring[1 - slot, env_id]


class Cell:
    """One environment in its row."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: int) -> None:
        self.env = env
        self.env_ids = (env_id,)
        self.over = self.lost = False
        """Whether the episode has ended; whether that still has to be told."""
        self.episode = 0
        self.seed: Seed = None
        self.next_reset: ResetArgs | None = None
        self.objects: dict[int, tuple[Any, ...]] = {}
        """Parts of the observation that have no row, by env id, until the worker sends them."""
        self.final_objects: dict[int, tuple[Any, ...]] = {}
        self._lost_objects: tuple[Any, ...] = ()
        """The same of the last known observation, until its loss is told."""

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        return self.env.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        return self.env.action_space

    def attach(self, desk: Desk) -> None:
        """Take a place at the rows; before that the environment is built but mute."""
        env_id = self.env_ids[0]
        self._desk, self._id, self._mode, self._flag = desk, env_id, desk.mode, desk.flag
        self._step: Callable[[Any], Any] = self.env.step
        self._reset: Callable[..., Any] = self.env.reset
        self._takes_options = takes_options(self.env)
        self._put_info = desk.infos.put
        self._holder = getattr(self.env, "unwrapped", self.env)
        self._generator = generators.Recorder(self._holder, desk.rows.generators[env_id].data)
        self._note, self._stamp = self._generator.note, desk.stamp
        layout = desk.rows.shape.observation
        self._has_objects = layout.has_objects
        self._writers = [
            _row_writer(desk, layout, arrays, env_id) for arrays in desk.rows.observations
        ]
        self._writes = [writer.write for writer in self._writers]
        if desk.rows.shape.keeps_finals:
            self._final_writer = _row_writer(desk, layout, desk.rows.finals, env_id)

    def shut(self) -> None:
        """Its environment is closed, and there is no other."""
        self.env = Shut(self.env)  # type: ignore[assignment]
        self._step, self._reset = self.env.step, self.env.reset

    def reset(self, slot: int, args: Sequence[ResetArgs]) -> None:
        """Reset because the caller says so; forgets what was planned for the next reset."""
        self.next_reset = None
        self._begin(slot, args[0])

    def step(self, slot: int, action: Any) -> float:
        """Step, or do what this mode does after an episode's end; the reward."""
        return self.after_end(slot) if self.over else self.take(slot, *self._step(action))

    def lane(self, slot: int, shelf: Sequence[Array] | None = None) -> Lane:
        """What a worker needs in order to do the same with its environments, one after another.

        What such a lane writes it also lays on the shelf, if there is one.
        """
        writer = self._writers[slot]
        write = None if self._has_objects else writer.write
        if shelf is None or write is None:
            return self, self._step, writer.memory, write, self._id, slot
        arrays = zip(shelf, self._desk.rows.observations[slot], strict=True)
        pairs = [(place[self._id, ...], array[self._id, ...]) for place, array in arrays]

        def write_twice(observation: Any) -> None:
            write(observation)
            for place, row in pairs:
                place[...] = row

        return self, self._step, None, write_twice, self._id, slot

    def take(
        self,
        slot: int,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: dict[str, Any],
    ) -> float:
        """Write down what a step has come to; the reward."""
        gain: float = reward if type(reward) is float else number(reward)
        if not terminated and not truncated:
            self._report(slot, observation, info)
            return gain
        self.over = True  # whatever fails from here on: this episode is not stepped again
        if self._mode is AutoresetMode.SAME_STEP:
            self._keep_final(observation)
            self._put_info(self._id, {"final_info": kept(info)})
            self._begin(slot, None)
        else:
            self._report(slot, observation, info)
        self._flag(self._id, slot, bool(terminated), bool(truncated))
        return gain

    def _keep_final(self, observation: Any) -> None:
        """Before the reset: the environment may use the same buffer again."""
        self._final_writer.write(observation)
        if self._has_objects:
            self.final_objects[self._id] = kept(self._final_writer.objects)
        if isinstance(observation, int | float | np.generic):
            self._desk.final_scalars[self._id] = observation

    def after_end(self, slot: int) -> float:
        """The step after an episode's end, whatever its action; there is no reward."""
        if self.lost:
            self._report_loss(slot)
        elif self._mode is AutoresetMode.DISABLED:
            raise EpisodeOver(_RESET_FIRST)
        else:
            self._begin(slot, None)
        return 0.0

    def _report_loss(self, slot: int) -> None:
        """End the episode that was lost with the worker, at its last known observation."""
        desk, self.lost = self._desk, False
        if desk.mode is AutoresetMode.SAME_STEP:
            desk.keep_as_final(self._id, slot)
            if self._has_objects:
                self.final_objects[self._id] = self._lost_objects
            self._put_info(self._id, RESTARTED | {"final_info": RESTARTED})
            self._begin(slot, None)
        else:
            desk.carry_over(self._id, slot)
            self._put_info(self._id, RESTARTED)
        desk.flag(self._id, slot, False, True)

    def _begin(self, slot: int, args: ResetArgs | None) -> None:
        """Start an episode: as the caller says, as planned, or (None) as the env likes."""
        if args is None:
            args, self.next_reset = self.next_reset, None
        if args is None or args.seed is None:
            if (state := self._note()) is not None:
                self._desk.generators[self._id] = state
        else:
            self.seed = args.seed
            self._generator.forget()
        said = {} if args is None else args.keywords(self._takes_options)
        self._stamp()
        observation, info = self._reset(**said)
        self.over = self.lost = False
        self.episode += 1
        self._report(slot, observation, info)

    def _report(self, slot: int, observation: Any, info: dict[str, Any]) -> None:
        self._writes[slot](observation)
        if self._has_objects:
            self.objects[self._id] = self._writers[slot].objects
        if info:
            self._put_info(self._id, info)

    def restore(self, env_id: int, how: Recovery, watch: Callable[[int], None]) -> str:
        """Bring a fresh environment to where it was; why that was not possible, if it was not."""
        for name, value in how.attributes.items():
            self.set_attr(name, {self._id: value})
        self.seed, self.next_reset, self.episode = how.seed, how.next_reset, how.num_episodes
        if how.episode is None:
            generators.put_back(self._holder, how.generator, how.seed)
            self.over, self.lost = how.num_episodes > 0, how.is_lost
            self._lost_objects = how.objects
            return ""
        return self._replay(how, how.episode, watch)

    def _replay(self, how: Recovery, episode: Episode, watch: Callable[[int], None]) -> str:
        """Take the recorded steps of an episode again; how the result differs, if it does."""
        moments = retrace(
            self.env,
            episode,
            self._desk.rows.shape.action,
            seed=how.seed,
            set_attr=lambda name, value: self.set_attr(name, {self._id: value}),
            watch=watch,
        )
        (last,) = deque(moments, maxlen=1)
        self.over = last.ended
        return difference(last, episode) or self._compare(last.observation, how)

    def _compare(self, observation: Any, how: Recovery) -> str:
        """How an observation differs from the last known one, if it does."""
        layout = self._desk.rows.shape.observation
        row = [np.zeros(leaf.shape, leaf.dtype) for leaf in layout.arrays]
        writer = Writer(layout, row, note=self._desk.note)
        writer.write(observation)
        for leaf, got, ring in zip(layout.arrays, row, self._desk.rows.rings, strict=True):
            if got.tobytes() != ring[how.slot, self._id].tobytes():
                return f"its {leaf.name('observation')} differs"
        if self._has_objects and not same(writer.objects, how.objects):
            return "its observation differs"
        return ""

    def snapshot(self) -> Any:
        """The state of the environment's generator."""
        return generators.take(self._holder)

    def plan_reset(self, env_id: int, args: ResetArgs) -> None:
        """What the next automatic reset uses, once."""
        self.next_reset = args

    def call(
        self, env_ids: Sequence[int], name: Called, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Call a method of the environment or any wrapper around it, or read an attribute."""
        if not isinstance(name, str):
            return [name(self.env, *args, **kwargs)]
        value = getattr(self.env, "get_wrapper_attr", self.env.__getattribute__)(name)
        return [value(*args, **kwargs) if callable(value) else value]

    def set_attr(self, name: str, values: dict[int, Any]) -> None:
        """Set an attribute where it is, or else on the outermost wrapper."""
        (value,) = values.values()
        if hasattr(self.env, "set_wrapper_attr"):
            self.env.set_wrapper_attr(name, value)
        else:
            setattr(self.env, name, value)


class BatchedCell:
    """A vector environment in its rows: it counts as `num_envs` environments that step together.

    Its own autoreset does the resetting, so its mode must be the pool's.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], first_id: int) -> None:
        self.env = env
        self.env_ids = tuple(range(first_id, first_id + env.num_envs))
        self.seed: Seed = None
        self.episode = 0
        self.lost = False
        self._reset_next: ResetArgs | None = None
        self._lost_objects: dict[int, tuple[Any, ...]] = {}
        self.objects: dict[int, tuple[Any, ...]] = {}
        self.final_objects: dict[int, tuple[Any, ...]] = {}

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        return self.env.single_observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        return self.env.single_action_space

    def attach(self, desk: Desk) -> None:
        self._desk = desk
        mode = self.env.metadata.get("autoreset_mode")
        if mode != desk.mode:
            raise ConfigError(
                f"the vector environment inside the worker resets in mode {mode}, but this pool "
                f"was asked for {desk.mode.value}. Build it with the same autoreset mode, or pass "
                "its mode as `autoreset`."
            )
        layout = desk.rows.shape.observation
        self._writers = [
            [_row_writer(desk, layout, arrays, env_id) for env_id in self.env_ids]
            for arrays in desk.rows.observations
        ]
        if desk.rows.shape.keeps_finals:
            finals = desk.rows.finals
            self._finals = [_row_writer(desk, layout, finals, i) for i in self.env_ids]

    def shut(self) -> None:
        self.env = Shut(self.env)  # type: ignore[assignment]

    def reset(self, slot: int, args: Sequence[ResetArgs | None]) -> None:
        """Reset all rows, or, where some have None, the others through Gymnasium's mask."""
        chosen = [one for one in args if one is not None]
        if self._reset_next is not None and len(chosen) < len(args):
            raise EpisodeOver(_RESET_TOGETHER.format(self.env_ids[0], self.env_ids[-1]))
        options = chosen[0].options
        if any(one.options != options for one in chosen):
            raise ContractError(
                "environments of one batched environment were given differing options; "
                "give all of them the same."
            )
        mask = np.array([one is not None for one in args], dtype=np.bool_)
        self.lost, self._reset_next = False, None
        if not mask.all():
            options = {**(options or {}), "reset_mask": mask}
        self.seed = chosen[0].seed
        observations, infos = self.env.reset(seed=_joint_seed(args), options=options)
        self.episode += 1
        for k in np.flatnonzero(~mask) if self._desk.rows.shape.slots > 1 else ():
            self._desk.carry_over(self.env_ids[k], slot)
        self._report(slot, observations, infos, np.flatnonzero(mask))

    def restore(self, env_id: int, how: Recovery, watch: Callable[[int], None]) -> str:
        """All its episodes are lost: those of a vector environment cannot be replayed one by one.

        Called once for each of its rows.
        """
        for name, value in how.attributes.items():
            self.set_attr(name, {env_id: value})
        if how.num_episodes:
            self.lost, self._reset_next = True, self._reset_next or how.next_reset or ResetArgs()
        self._lost_objects[env_id] = how.objects
        return "it is part of a vector environment" if how.episode is not None else ""

    def _report_loss(self, slot: int) -> None:
        desk, self.lost = self._desk, False
        is_same_step = desk.mode is AutoresetMode.SAME_STEP
        for env_id in self.env_ids:
            if is_same_step:
                desk.keep_as_final(env_id, slot)
                self.final_objects[env_id] = self._lost_objects.get(env_id, ())
            else:
                desk.carry_over(env_id, slot)
        if is_same_step:
            self._restart(slot)
        for env_id in self.env_ids:
            info: dict[str, Any] = {"final_info": RESTARTED} if is_same_step else {}
            desk.infos.put(env_id, RESTARTED | info)
            desk.flag(env_id, slot, False, True)

    def _restart(self, slot: int) -> None:
        assert self._reset_next is not None
        seed = self._reset_next.seed
        args = [ResetArgs(None if seed is None else seed + k) for k in range(len(self.env_ids))]
        self.reset(slot, args)

    def step(self, slot: int, actions: Any) -> list[float]:
        """Step all rows together; their rewards."""
        if self.lost:
            self._report_loss(slot)
            return [0.0] * len(self.env_ids)
        if self._reset_next is not None:
            if self._desk.mode is AutoresetMode.DISABLED:
                raise EpisodeOver(_RESET_FIRST)
            self._restart(slot)
            return [0.0] * len(self.env_ids)
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rewards = self._column("rewards", rewards, np.float64)
        terminated = self._column("terminations", terminated, np.bool_)
        truncated = self._column("truncations", truncated, np.bool_)
        infos = dict(infos)
        finals, _ = infos.pop("final_obs", None), infos.pop("_final_obs", None)
        ended = np.flatnonzero(terminated | truncated)
        if self._desk.mode is AutoresetMode.SAME_STEP:
            self._keep_finals(ended, finals)
        self._report(slot, observations, infos, range(len(self.env_ids)))
        for k in ended:
            self._desk.flag(self.env_ids[k], slot, terminated[k], truncated[k])
        each_reward: list[float] = rewards.tolist()
        return each_reward

    def _column(self, name: str, values: Any, dtype: Any) -> Array:
        array = np.asarray(values, dtype=dtype)
        if array.shape != (len(self.env_ids),):
            raise ContractError(
                f"{name} have shape {array.shape}; expected ({len(self.env_ids)},), one for each "
                "environment of the vector environment."
            )
        return array

    def _keep_finals(self, ended: Array, finals: Any) -> None:
        if len(ended) and finals is None:
            raise ContractError("an episode ended without `final_obs` in the infos.")
        for k in ended:
            self._finals[k].write(finals[k])
            self.final_objects[self.env_ids[k]] = self._finals[k].objects

    def _report(
        self, slot: int, observations: Any, infos: dict[str, Any], rows: Sequence[int] | Array
    ) -> None:
        layout = self._desk.rows.shape.observation
        parts = layout.take_apart(observations)
        if not layout.has_objects and len(rows) == len(self.env_ids) and self._fits(parts):
            block = slice(self.env_ids[0], self.env_ids[-1] + 1)
            for array, part in zip(self._desk.rows.observations[slot], parts, strict=True):
                array[block] = part
            rows = ()
        for k in rows:
            writer, env_id = self._writers[slot][k], self.env_ids[k]
            writer.write(layout.assemble([part[k] for part in parts]))
            if layout.has_objects:
                self.objects[env_id] = writer.objects
        for k, info in enumerate(_split_infos(infos, len(self.env_ids))):
            if info:
                self._desk.infos.put(self.env_ids[k], info)

    def _fits(self, parts: Sequence[Any]) -> bool:
        """Whether a batch can be written as a whole: arrays of just the right kind."""
        leaves = self._desk.rows.shape.observation.arrays
        return not self._desk.check_finite and all(
            isinstance(part, np.ndarray)
            and part.dtype == leaf.dtype
            and part.shape == (len(self.env_ids), *leaf.shape)
            for leaf, part in zip(leaves, parts, strict=True)
        )

    def plan_reset(self, env_id: int, args: ResetArgs) -> None:
        raise ContractError(
            "set_next_reset is not possible inside a vector environment, which resets by itself."
        )

    def call(
        self, env_ids: Sequence[int], name: Called, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """One call for all of them; the results of those asked for."""
        if not isinstance(name, str):
            return [name(self.env, *args, **kwargs)] * len(env_ids)
        rows = [env_id - self.env_ids[0] for env_id in env_ids]
        if name == "render":
            results: Any = self.env.render() or [None] * len(self.env_ids)
        elif hasattr(self.env, "call"):
            results = self.env.call(name, *args, **kwargs)
        else:
            value = getattr(self.env, name)
            value = value(*args, **kwargs) if callable(value) else value
            results = [value] * len(self.env_ids)
        return [results[row] for row in rows]

    def set_attr(self, name: str, values: dict[int, Any]) -> None:
        """Set an attribute of single environments where they can be told apart, else of all."""
        first = self.env_ids[0]
        if not hasattr(self.env, "get_attr"):
            for value in values.values():
                setattr(self.env, name, value)
            return
        everyone = list(values.values())
        if len(values) < len(self.env_ids):
            everyone = list(self.env.get_attr(name))
            for env_id, value in values.items():
                everyone[env_id - first] = value
        self.env.set_attr(name, everyone)  # type: ignore[attr-defined]


def same(first: Any, other: Any) -> bool:
    """Whether two values are alike, arrays within them included."""
    if isinstance(first, np.ndarray) and isinstance(other, np.ndarray):
        return first.dtype == other.dtype and first.tobytes() == other.tobytes()
    if isinstance(first, dict) and isinstance(other, dict):
        return first.keys() == other.keys() and all(same(first[key], other[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(other, list | tuple):
        return len(first) == len(other) and all(map(same, first, other))
    return bool(first == other)


def _row_writer(desk: Desk, layout: Layout, arrays: Sequence[Array], env_id: int) -> Writer:
    row = [array[env_id : env_id + 1].reshape(array.shape[1:]) for array in arrays]
    return Writer(layout, row, note=desk.note, check_finite=desk.check_finite)


def _joint_seed(args: Sequence[ResetArgs | None]) -> Any:
    """One seed for a vector environment: its first where they count up, else the list."""
    seeds = [None if one is None else one.seed for one in args]
    first = seeds[0]
    if first is None:
        return None if all(seed is None for seed in seeds) else seeds
    counting = [first + k for k in range(len(seeds))]
    return first if seeds == counting else seeds


def _split_infos(infos: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Gymnasium's batched infos, taken apart into one dict per environment."""
    split: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, values in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        mask = infos.get(f"_{key}", np.ones(count, dtype=np.bool_))
        inner = _split_infos(values, count) if isinstance(values, dict) else values
        for k in np.flatnonzero(mask):
            # A bool must stay Python's: Gymnasium batches NumPy's as objects.
            value = inner[k]
            split[k][key] = bool(value) if isinstance(value, np.bool_) else value
    return split
