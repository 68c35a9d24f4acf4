"""`shoal.VectorEnv`: a pool, presented as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from shoal.engine.batch import Batch
from shoal.engine.bottleneck import Shares, bottleneck
from shoal.errors import ContractError, shown
from shoal.layout import Array
from shoal.seeding import Seed, seeds_of
from shoal.vector.checks import as_count, as_whole

if TYPE_CHECKING:
    from shoal.engine.memento import Memento
    from shoal.engine.pool import Pool, ResetPlan

Options = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
EnvIds = Iterable[int] | None


class VectorEnv(GymnasiumVectorEnv[Any, Any, Any]):
    """Many environments, stepped together or as they come. Made by `shoal.make`.

    Arrays that are returned are the caller's own; with `copy=False` the observations of `step` and
    `reset` are views, and a row stays valid until its environment's second step or reset after the
    one that returned it (`reset` with a mask, and `catch_up`, count for all; `resize` for nobody).
    `recv` always copies. One thread at a time may use them.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        spec: EnvSpec | None = None,
        seed: int | None = None,
        batch_size: int | None = None,
        reason: str = "as asked",
    ) -> None:
        self._pool = pool
        self._num_workers = pool.plan.num_workers
        """As many as were asked for; there are fewer while there are fewer environments."""
        self._first_seed, self._batch_size, self._reason = seed, batch_size, reason
        self._run_seed = seed
        self._first_seeds = dict(enumerate(seeds_of(seed, pool.num_envs)))
        """What environments are seeded with that are reset for the first time, and not by `reset`
        of all: that is seeded with `_first_seed`, whoever was reset before."""
        self.copy = pool.plan.copy
        self.spec, self.render_mode = spec, pool.first.render_mode
        self.metadata = {**pool.first.metadata, "autoreset_mode": pool.plan.terms.autoreset}
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space
        self._set_num_envs(pool.num_envs)

    # --- Gymnasium's contract ---------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[Seed] | None = None, options: Options = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`.

        `seed` is one integer (env i gets `seed + i`) or one per environment. `options` is one dict
        for all, or a list with one dict (or None) per environment. With a mask, the observations
        of the others are their latest, and infos are only of those that were reset.
        """
        plan = reset_plan(seed, options, self.num_envs)
        is_for_all = len(plan) == self.num_envs
        if is_for_all and seed is None and self._first_seed is not None:
            seed = self._first_seed
            plan = reset_plan(seed, options, self.num_envs)
        if seed is not None:
            self._run_seed = int(seed) if isinstance(seed, int | np.integer) else None
        results = self._reset(plan)
        if is_for_all:
            self._first_seed = None
        return results

    def _reset(
        self, plan: ResetPlan, env_ids: Sequence[int] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset these environments; those that never were have the seed that is meant for them."""
        first = self._first_seeds
        results = self._pool.reset(
            {i: (first.get(i) if s is None else s, options) for i, (s, options) in plan.items()},
            env_ids,
        )
        self._first_seeds = {i: s for i, s in first.items() if i not in plan} if first else first
        return results

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """One step of every environment, whatever `batch_size` is."""
        return self._pool.step(actions)

    def make_pages(self, count: int) -> None:
        """Have room for the observations of `count` steps one after another, as rollouts need it.

        Workers write there, and nobody copies; see `pages` and `step_onto`.
        """
        self._pool.make_pages(as_count("count", count))

    def pages(self) -> list[Array] | None:
        """That room: an array `[count, num_envs, ...]` for each leaf of the observation space.

        None where observations are so small that copies cost less, where they do not lie in shared
        rows, and while anything that was made of these arrays is still held.
        """
        return self._pool.pages()

    def step_onto(self, page: int, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """`step`, with its observations on this page: what is returned lies there.

        Unless something else happened than steps (a worker was replaced, say): then they are what
        `step` returns, to be copied.
        """
        return self._pool.step(actions, page)

    def render(self) -> tuple[Any, ...]:
        """One frame per environment."""
        return self.call("render")

    def close_extras(self, timeout_s: float | None = None, *, timeout: float | None = None) -> None:
        """Ask, wait for `timeout_s` (default 5), then insist; every `env.close()` is run.

        `timeout` is what Gymnasium calls it.
        """
        self._pool.close(timeout if timeout_s is None else timeout_s)

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # On Ctrl-C or sys.exit somebody waits for the program to end.
        is_ending = kind is not None and not issubclass(kind, Exception)
        self.close(timeout_s=self._pool.exit_timeout_s) if is_ending else self.close()

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generator of each environment (a copy, where it lives in another process)."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed that each environment's generator was made from."""
        return self.get_attr("np_random_seed")

    # --- some environments ------------------------------------------------------------------

    def reset_envs(
        self,
        env_ids: Iterable[int],
        seeds: int | Sequence[Seed] | None = None,
        options: Options = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset these environments now, each with its own seed and options (its own task).

        Returns observations and infos of these, in the order given. An integer seed means
        `seed + env_id`, as everywhere. An environment that was never reset and is given no seed
        has the one of `make(seed=...)`.
        """
        ids, args = self._reset_args(env_ids, seeds, options)
        return self._reset(args, ids)

    def set_next_reset(
        self,
        env_ids: Iterable[int],
        seeds: int | Sequence[Seed] | None = None,
        options: Options = None,
    ) -> None:
        """What the next *automatic* reset of these environments uses, once.

        An explicit reset clears it.
        """
        self._pool.plan_reset(self._reset_args(env_ids, seeds, options)[1])

    def send(self, actions: Any, env_ids: EnvIds = None) -> None:
        """Start a step of these environments (default: all) and return at once."""
        self._pool.send(self._ids(env_ids), actions)

    @property
    def num_sent(self) -> int:
        """How many environments were sent and not received yet."""
        return self._pool.post.num_sent

    def recv(self, min_envs: int | None = None, timeout_s: float | None = None) -> Batch:
        """The environments that are ready, at least `min_envs` of them (default `batch_size`).

        Without either, all that are outstanding. TimeoutError when too few are ready in time, and
        nothing is lost.
        """
        if min_envs is not None:
            min_envs = as_whole("recv: min_envs", min_envs)
        elif self._batch_size is not None:
            min_envs = min(self._batch_size, max(1, self._pool.post.num_sent))
        return self._pool.recv(min_envs, timeout_s)

    def resize(
        self, num_envs: int | None = None, num_workers: int | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Have more or fewer environments and workers from the next step on.

        Highest numbers go. New environments are reset (with the seeds that they would have had from
        the start, if the last `reset` was given one); their observations and infos are returned.
        The others keep their episodes, and change worker only between two of them.
        """
        pool, before = self._pool, self.num_envs
        envs = before if num_envs is None else as_count("num_envs", num_envs)
        asked = self._num_workers
        asked = asked if num_workers is None else as_count("num_workers", num_workers)
        try:
            pool.resize(envs, 1 if pool.backend.name == "serial" else min(asked, envs))
            self._num_workers = asked
        finally:
            self._set_num_envs(len(pool.owner))
        fresh = list(range(before, self.num_envs))
        if not fresh:
            return pool.reset_results([])
        seeds = seeds_of(self._run_seed, self.num_envs)
        return pool.reset({i: (seeds[i], None) for i in fresh}, fresh)

    def branch(self, env_id: int, into_ids: Iterable[int]) -> None:
        """Make other environments continue from the exact state of this one.

        Their own episodes are given up without a report. It is done by a replay of the running
        episode, so it works for environments that follow from generator, options and actions
        alone; for others it is an error.
        """
        (origin,), targets = self._ids([env_id]), self._ids(into_ids)
        if origin in targets:
            raise ContractError(f"branch: env {origin} cannot branch into itself.")
        self._pool.branch(origin, targets)

    def catch_up(self) -> tuple[Any, dict[str, Any]]:
        """What all environments look like now, after a call that Ctrl-C has broken off.

        Steps that were begun are waited for; what was sent is received, or not begun at all. Where
        it is not known what an environment has done (one that lives in this process may have been
        in the middle of a step), it is reset. Infos are those that are numbers or arrays; others
        may be missing.
        """
        return self._pool.catch_up()

    def mementos(self) -> list[Memento]:
        """Where every environment stands, for others that `go_on` from there, maybe another day."""
        return self._pool.mementos()

    def go_on(self, mementos: Sequence[Memento]) -> list[int]:
        """Bring environments that were never reset to where others stood, by replays.

        Returns those that did not get there: their next steps report a lost episode, as after a
        restart.
        """
        return self._pool.go_on(mementos)

    def _set_num_envs(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def call(self, name: str, *args: Any, env_ids: EnvIds = None, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute; one result each."""
        return self._pool.call(name, args, kwargs, self._ids(env_ids))

    def get_attr(self, name: str, env_ids: EnvIds = None) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return self._pool.call(name, (), {}, self._ids(env_ids))

    def set_attr(self, name: str, values: Any, env_ids: EnvIds = None) -> None:
        """Set an attribute: a list or tuple gives one value each, anything else is for all."""
        ids = self._ids(env_ids)
        if not isinstance(values, (list, tuple)):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ContractError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {len(ids)} environments."
            )
        self._pool.set_attr(name, dict(zip(ids, values, strict=True)))

    def stats(self) -> dict[str, Any]:
        """What the engine knows of itself: see the table in the documentation."""
        return describe_pool(self._pool, self._reason)

    # --- inside -----------------------------------------------------------------------------

    def _ids(self, env_ids: EnvIds) -> list[int]:
        if env_ids is None:
            return list(range(self.num_envs))
        if isinstance(env_ids, int | np.integer):
            env_ids = [int(env_ids)]
        if type(env_ids) is np.ndarray and env_ids.dtype == np.int64 and env_ids.ndim == 1:
            ids: list[int] = env_ids.tolist()
        else:
            ids = list(map(_as_id, env_ids))
        if not ids or min(ids) < 0 or max(ids) >= self.num_envs or len(set(ids)) < len(ids):
            raise ContractError(
                f"env_ids are {shown(ids)}; expected different numbers "
                f"from 0 to {self.num_envs - 1}."
            )
        return ids

    def _reset_args(
        self, env_ids: Iterable[int], seeds: int | Sequence[Seed] | None, options: Options
    ) -> tuple[list[int], ResetPlan]:
        ids = self._ids(env_ids)
        if seeds is not None and not isinstance(seeds, Sequence | np.ndarray):
            every = seeds_of(seeds, self.num_envs)
            per_env: list[Seed] = [every[i] for i in ids]
        else:
            per_env = seeds_of(seeds, len(ids))
        chosen = _options_for(options, len(ids))
        if any(one is not None and "reset_mask" in one for one in chosen):
            raise ContractError(
                "options hold a reset_mask, but env_ids say already who is reset. "
                "Leave it out, or call reset(options=...)."
            )
        return ids, {i: (s, o) for i, s, o in zip(ids, per_env, chosen, strict=True)}


def _as_id(env_id: Any) -> int:
    """The number of an environment, which a flag of a mask is not, though Python counts with it."""
    if not isinstance(env_id, bool | np.bool_):
        try:
            return operator.index(env_id)
        except TypeError:
            pass
    raise ContractError(
        f"env_ids hold {shown(env_id)}; expected numbers of environments. "
        "np.flatnonzero(mask) gives those of a mask."
    )


def reset_plan(seed: int | Sequence[Seed] | None, options: Options, num_envs: int) -> ResetPlan:
    """Seed and options of each environment that a reset is for: of all, or of those in a mask."""
    ids: Iterable[int] = range(num_envs)
    if isinstance(options, Mapping) and "reset_mask" in options:
        ids = np.flatnonzero(check_reset_mask(options["reset_mask"], num_envs)).tolist()
        options = {key: value for key, value in options.items() if key != "reset_mask"}
    seeds, every = seeds_of(seed, num_envs), _options_for(options, num_envs)
    return {i: (seeds[i], every[i]) for i in ids}


def _options_for(options: Any, count: int) -> list[dict[str, Any] | None]:
    if options is None:
        return [None] * count
    if isinstance(options, Mapping):
        return [dict(options) for _ in range(count)]
    each: list[Any] = list(options) if isinstance(options, Sequence | np.ndarray) else [options]
    wrong = [one for one in each if one is not None and not isinstance(one, Mapping)]
    if wrong:
        raise ContractError(
            f"options hold {shown(wrong[0])}; expected a dict for all environments, or a list with "
            "a dict or None for each."
        )
    if len(each) != count:
        raise ContractError(f"options holds {len(each)} entries; expected {count}, one each.")
    return [None if one is None else dict(one) for one in each]


def check_reset_mask(mask: Any, num_envs: int) -> Array:
    """The mask, if it is one; errors are those of Gymnasium."""
    name = "`options['reset_mask']`"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{name} must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(f"{name} must have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"{name} must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            f"{name} must contain a boolean array with at least one True value, "
            f"got reset_mask={mask}"
        )
    return mask


def describe_pool(pool: Pool, reason: str) -> dict[str, Any]:
    """The entries of `stats()`."""
    alive_s, tally = time.perf_counter() - pool.opened, pool.tally()
    episodes = list(tally.episodes)  # at once: another thread may be stepping
    busy = pool.busy_fractions()
    shares = Shares(
        waiting=pool.wait_s / alive_s,
        busy=busy,
        rounds=tally.steps / pool.num_envs,
        in_caller=pool.backend.name == "serial",
    )
    return {
        "backend": pool.backend.name,
        "reason": reason,
        "num_envs": pool.num_envs,
        "num_workers": len(pool.seats),
        "start_method": pool.backend.start_method,
        "start_s": pool.start_s,
        "rows_bytes": pool.books.rows.shape.nbytes(),
        "steps": tally.steps,
        "steps_per_s": tally.steps / alive_s,
        "wait_s": pool.wait_s,
        "busy_fraction": busy,
        "bottleneck": bottleneck(shares),
        "episodes": tally.num_episodes,
        "episode_returns": [episode_return for episode_return, _ in episodes],
        "episode_lengths": [length for _, length in episodes],
        **pool.supervisor.describe(),
    }
