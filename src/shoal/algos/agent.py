"""Agent: a network, a head for its actions and what it knows about its observations.

It is all that has to be kept of a training run in order to act, and what a collector acts with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.algos import guest
from shoal.algos.graphs import Graphs
from shoal.algos.guest import MakeNetwork as MakeNetwork
from shoal.algos.heads import Head, Judged, head_of
from shoal.algos.networks import ActorCritic, NetworkConfig, is_image
from shoal.algos.normal import Normal
from shoal.algos.numbers import Numbers, array, bare
from shoal.algos.pinning import pin
from shoal.algos.plain import PlainPair, Traced
from shoal.errors import ContractError
from shoal.layout import Array, Layout, Leaf
from shoal.rollout.actor import Decision


class Opinion(NamedTuple):
    """What an agent thinks by now of actions, and of the observations they were drawn for."""

    values: Numbers
    judged: Judged
    traced: tuple[Traced, Traced] | None = None
    """How a plain network came to it, or else"""
    found: tuple[Tensor, Tensor] | None = None
    """parameters and values, as autograd knows them."""


class Agent(nn.Module):
    """Decides about observations, and judges what was decided before.

    `central` is what only its critic sees: observations are then pairs of what both do and that.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: NetworkConfig,
        make_network: MakeNetwork | None = None,
        central: spaces.Box | None = None,
    ) -> None:
        super().__init__()
        if central is not None:
            observation_space = spaces.Tuple((observation_space, central))
        self.central = central
        self.version, self.device = 0, torch.device("cpu")
        self._graphs: Graphs | None = None
        self.layout = Layout(observation_space)
        self.head: Head = head_of(
            action_space, squash=config.squash_actions, log_std=config.initial_log_std
        )
        if make_network is None:
            width = 0 if central is None else central.shape[0]
            own = ActorCritic(observation_space, self.head.size, config, width)
            self.network: nn.Module = own
            self._own_plain = own.plain
        else:
            self.network = guest.invite(make_network, observation_space, self.head.size)
            self._own_plain = None  # what others have made is not looked into
        self.state_size = int(getattr(self.network, "state_size", 0))
        self.normals = nn.ModuleList(
            Normal(leaf.shape)
            if config.normalize_observations and _is_scalable(leaf)
            else nn.Identity()
            for leaf in self.layout.leaves
        )
        self._normalizes = config.normalize_observations
        self.eval()  # what is drawn in a forward pass would be no part of the run's seed
        if make_network is not None:
            guest.check(self.network, observation_space, self.head.size, self._batch)

    def _batch(self, observations: list[Any]) -> Any:
        """Some of them, as the network is given them."""
        parts = zip(*map(self.layout.take_apart, observations), strict=True)
        pairs = zip(self.layout.leaves, parts, strict=True)
        return self.observation([_tensor(np.array(one, dtype=leaf.dtype)) for leaf, one in pairs])

    @property
    def _plain(self) -> PlainPair | None:
        """The network by NumPy, where that can be."""
        return self._own_plain if self.device.type == "cpu" else None

    def _features(self, seen: Any) -> Array:
        """What a plain network is given."""
        return self.network.encode(seen).numpy()  # type: ignore[operator,no-any-return]

    # --- acting -----------------------------------------------------------------------------

    def initial_state(self, num_envs: int) -> Array | None:
        if not self.state_size:
            return None
        return np.zeros((num_envs, self.state_size), dtype=np.float32)

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """For a GPU, memory that it can read by itself while others compute."""
        if self.device.type != "cuda":
            return np.empty(shape, dtype)
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        array: Array = torch.empty(shape, dtype=kind, pin_memory=True).numpy()
        return array

    def reach(self, pages: Sequence[Array]) -> None:
        """Let a GPU read these arrays by itself as well."""
        if self.device.type == "cuda":
            for page in pages:
                pin(page)

    def noise(self, num_steps: int, num_envs: int, random: torch.Generator) -> Numbers:
        """The chance in so many decisions about so many environments, for `act`."""
        drawn = self.head.noise(num_steps * num_envs, random).view(num_steps, num_envs, -1)
        return bare(drawn.to(self.device, non_blocking=True))

    def act(
        self,
        observations: tuple[Array, ...],
        state: Array | None,
        action_masks: Array | None,
        noise: Numbers,
    ) -> Decision:
        draw = self._draw if self._graphs is None else self._graphs
        found = draw(noise, *self._given(observations, state, action_masks))
        actions, log_probs, values, *kept = map(array, found)
        env_actions = self.head.to_env(actions)
        return Decision(actions, env_actions, log_probs, values, kept[0] if kept else None)

    def act_best(
        self, observations: tuple[Array, ...], state: Array | None, action_masks: Array | None
    ) -> tuple[Array, Array | None]:
        """The most probable actions, as environments take them; and a memory's state."""
        masks, remembered, *leaves = self._given(observations, state, action_masks)
        parameters, _, *kept = self._run(remembered, leaves)
        actions = array(self.head.best(parameters, self._there(masks)))
        return self.head.to_env(actions), array(kept[0]) if kept else None

    def value(self, observations: tuple[Array, ...], state: Array | None) -> Array:
        _, remembered, *leaves = self._given(observations, state, None)
        return array(self._run(remembered, leaves)[1])

    def _given(
        self, observations: tuple[Array, ...], state: Array | None, masks: Array | None
    ) -> list[Any]:
        """Masks, state and leaves, as tensors where they are now."""
        return [None if one is None else _tensor(one) for one in (self._checked(masks), state)] + [
            _tensor(one) for one in observations
        ]

    def _checked(self, masks: Array | None) -> Array | None:
        if masks is None or not self.head.takes_masks:
            return None
        if masks.shape[-1] != self.head.size:
            raise ContractError(
                f"action_mask has {masks.shape[-1]} entries; expected {self.head.size}, one for "
                "each choice (those of a MultiDiscrete one after the other)."
            )
        return masks

    def _draw(
        self, noise: Numbers, masks: Tensor | None, state: Tensor | None, *leaves: Tensor
    ) -> tuple[Numbers, ...]:
        """Actions, their log-probabilities, values, and what is remembered."""
        parameters, *others = self._run(state, leaves)
        return *self.head.draw(parameters, self._there(masks), noise), *others

    def _run(self, state: Tensor | None, leaves: Sequence[Any]) -> tuple[Numbers, ...]:
        """Parameters, values, and what is remembered."""
        plain = self._plain
        if plain is not None:
            return plain(self._features(self.observation(list(leaves))))
        with torch.inference_mode():
            seen = self.observation([self._put(leaf) for leaf in leaves])
            found = self.network(seen) if state is None else self.network(seen, self._put(state))
        return tuple(map(bare, found))

    def _put(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True)

    def _there(self, masks: Tensor | None) -> Numbers | None:
        return None if masks is None else bare(self._put(masks))

    def _apply(self, *args: Any, **kwargs: Any) -> Agent:
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]  # which is what `to` and the like are made of
        self.device = next(self.parameters()).device
        self._graphs = None
        if self.device.type == "cuda" and type(self.network) is ActorCritic:
            self._graphs = Graphs(self._draw, self.device)
        return self

    # --- learning ---------------------------------------------------------------------------

    def observation(self, leaves: list[Tensor]) -> Any:
        """Leaves `[batch, ...]` as the network takes them: scaled, and in their places."""
        if self._normalizes:
            pairs = zip(self.normals, leaves, strict=True)
            leaves = [one(leaf) for one, leaf in pairs]
        return self.layout.assemble(leaves)

    def judge(self, leaves: list[Tensor], actions: Tensor, masks: Tensor | None) -> Opinion:
        seen, plain = self.observation(leaves), self._plain
        if plain is None:
            return self._opinion(self.network(seen), actions, masks)
        for_actions, for_values = traced = plain.trace(self._features(seen))
        judged = self._judged(for_actions[-1], actions, masks)
        return Opinion(for_values[-1][:, 0], judged, traced=traced)

    def _opinion(
        self, found: tuple[Tensor, Tensor], actions: Tensor, masks: Tensor | None
    ) -> Opinion:
        parameters, values = found
        judged = self._judged(bare(parameters), actions, masks)
        return Opinion(bare(values), judged, found=(parameters, values))

    def _judged(self, parameters: Numbers, actions: Tensor, masks: Tensor | None) -> Judged:
        return self.head.judge(parameters, bare(actions), None if masks is None else bare(masks))

    def go_back(
        self, opinion: Opinion, push: Numbers, spread: Numbers | None, pull: Numbers
    ) -> None:
        """Find the gradients of a loss.

        From what it changes by with log-probabilities, with entropies (None: not at all) and with
        values.
        """
        slope = opinion.judged.slope(push, spread)
        plain = self._plain
        if plain is not None and opinion.traced is not None:
            plain.go_back(opinion.traced, slope, pull)
        else:
            assert opinion.found is not None
            torch.autograd.backward(opinion.found, [torch.as_tensor(slope), torch.as_tensor(pull)])

    def judge_sequences(
        self,
        leaves: list[Tensor],
        actions: Tensor,
        masks: Tensor | None,
        state: Tensor,
        starts: Tensor,
    ) -> Opinion:
        """The same for sequences; all but `state` and `starts` are `[time * batch, ...]`."""
        if isinstance(self.network, ActorCritic):
            found = self.network.unroll(self.observation(leaves), state, starts)
        else:
            found = self._unroll(leaves, state, starts)
        return self._opinion(found, actions, masks)

    def _unroll(self, leaves: list[Tensor], state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Step by step, for a network that knows no other way."""
        moments = zip(*(leaf.unflatten(0, starts.shape) for leaf in leaves), strict=True)
        told = []
        for moment, is_start in zip(moments, starts, strict=True):
            kept = state * ~is_start[:, None]
            parameters, values, state = self.network(self.observation(list(moment)), kept)
            told.append((parameters, values))
        parameters, values = zip(*told, strict=True)
        return torch.cat(parameters), torch.cat(values)

    def see(self, leaves: list[Tensor]) -> None:
        """Learn how observations are spread; from here on they are scaled by that, too."""
        for normal, leaf in zip(self.normals, leaves, strict=True):
            if isinstance(normal, Normal):
                normal.see(leaf)


def _is_scalable(leaf: Leaf) -> bool:
    """Numbers that a scale makes sense for."""
    return isinstance(leaf.space, spaces.Box) and not is_image(leaf.space)


def _tensor(values: Array) -> Tensor:
    return torch.from_numpy(values.astype(np.float32) if values.dtype == np.float64 else values)
