"""Agent: a network, a head for its actions and what it knows about its observations.

It is all that has to be kept of a training run in order to act, and what a collector acts with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.algos.heads import Head, Judged, head_of
from shoal.algos.networks import ActorCritic, NetworkConfig, Traced, is_image
from shoal.algos.normal import Normal
from shoal.errors import ContractError
from shoal.layout import Array, Layout, Leaf
from shoal.rollout.actor import Decision

MakeNetwork = Callable[[spaces.Space[Any], int], nn.Module]
"""Makes a network from an observation space and the number of parameters that actions need."""


class Opinion(NamedTuple):
    """What an agent thinks by now of actions, and of the observations they were drawn for."""

    parameters: Tensor
    """Of the actions' distributions."""
    values: Tensor
    judged: Judged
    traced: tuple[Traced, Traced] | None = None
    """How a network of plain layers came to it, of which autograd knows nothing."""


class Agent(nn.Module):
    """Decides about observations, and judges what was decided before."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: NetworkConfig,
        make_network: MakeNetwork | None = None,
    ) -> None:
        super().__init__()
        self.version, self.device = 0, torch.device("cpu")
        self.layout = Layout(observation_space)
        self.head: Head = head_of(
            action_space, squash=config.squash_actions, log_std=config.initial_log_std
        )
        if make_network is None:
            self.network: nn.Module = ActorCritic(observation_space, self.head.size, config)
        else:
            self.network = make_network(observation_space, self.head.size)
        self._is_own = make_network is None
        self.state_size = int(getattr(self.network, "state_size", 0))
        self.normals = nn.ModuleList(
            Normal(leaf.shape)
            if config.normalize_observations and _is_scalable(leaf)
            else nn.Identity()
            for leaf in self.layout.leaves
        )
        self._normalizes = config.normalize_observations
        self.eval()  # what is drawn in a forward pass would be no part of the run's seed

    @property
    def _plain(self) -> ActorCritic | None:
        """Our own network, if of plain layers; what others have made is not looked into."""
        network = self.network
        is_plain = self._is_own and type(network) is ActorCritic and network.is_plain
        return network if is_plain else None  # type: ignore[return-value]

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

    @torch.inference_mode()
    def act(
        self,
        observations: tuple[Array, ...],
        state: Array | None,
        action_masks: Array | None,
        random: torch.Generator,
    ) -> Decision:
        parameters, values, remembered = self._run(observations, state)
        masks = self._masks(action_masks)
        noise = self.head.noise(len(parameters), random).to(self.device, non_blocking=True)
        actions, log_probs = self.head.draw(parameters, masks, noise)
        drawn = actions.cpu().numpy()
        return Decision(
            drawn,
            self.head.to_env(drawn),
            log_probs.cpu().numpy(),
            values.cpu().numpy(),
            None if remembered is None else remembered.cpu().numpy(),
        )

    @torch.inference_mode()
    def act_best(
        self, observations: tuple[Array, ...], state: Array | None, action_masks: Array | None
    ) -> tuple[Array, Array | None]:
        """The most probable actions, as environments take them; and a memory's state."""
        parameters, _, remembered = self._run(observations, state)
        actions = self.head.best(parameters, self._masks(action_masks)).cpu().numpy()
        kept = None if remembered is None else remembered.cpu().numpy()
        return self.head.to_env(actions), kept

    @torch.inference_mode()
    def value(self, observations: tuple[Array, ...], state: Array | None) -> Array:
        values: Array = self._run(observations, state)[1].cpu().numpy()
        return values

    def _run(
        self, observations: tuple[Array, ...], state: Array | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        seen = self.observation([self._tensor(one) for one in observations])
        if state is None:
            plain = self._plain
            if plain is not None:
                for_actions, for_values = plain.trace(seen)
                return for_actions[-1], for_values[-1][:, 0], None
            parameters, values = self.network(seen)
            return parameters, values, None
        parameters, values, remembered = self.network(seen, self._tensor(state))
        return parameters, values, remembered

    def _tensor(self, array: Array) -> Tensor:
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def _masks(self, masks: Array | None) -> Tensor | None:
        if masks is None or not self.head.takes_masks:
            return None
        if masks.shape[-1] != self.head.size:
            raise ContractError(
                f"action_mask has {masks.shape[-1]} entries; expected {self.head.size}, one for "
                "each choice (those of a MultiDiscrete one after the other)."
            )
        return self._tensor(masks)

    def _apply(self, *args: Any, **kwargs: Any) -> Agent:
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]  # which is what `to` and the like are made of
        self.device = next(self.parameters()).device
        return self

    # --- learning ---------------------------------------------------------------------------

    def observation(self, leaves: list[Tensor]) -> Any:
        """Leaves `[batch, ...]` as the network takes them: scaled, and in their places."""
        if self._normalizes:
            pairs = zip(self.normals, leaves, strict=True)
            leaves = [one(leaf) for one, leaf in pairs]
        return self.layout.assemble(leaves)

    def judge(self, leaves: list[Tensor], actions: Tensor, masks: Tensor | None) -> Opinion:
        seen, plain, traced = self.observation(leaves), self._plain, None
        if plain is not None:
            traced = for_actions, for_values = plain.trace(seen)
            parameters, values = for_actions[-1], for_values[-1][:, 0]
        else:
            parameters, values = self.network(seen)
        return Opinion(parameters, values, self.head.judge(parameters, actions, masks), traced)

    def go_back(self, opinion: Opinion, push: Tensor, spread: Tensor | None, pull: Tensor) -> None:
        """Find the gradients of a loss.

        From what it changes by with log-probabilities, with entropies (None: not at all) and with
        values.
        """
        slope = opinion.judged.slope(push, spread)
        if opinion.traced is None:
            torch.autograd.backward([opinion.parameters, opinion.values], [slope, pull])
            return
        plain = self._plain
        assert plain is not None
        plain.go_back(opinion.traced, slope, pull)

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
            parameters, values = self.network.unroll(self.observation(leaves), state, starts)
        else:
            parameters, values = self._unroll(leaves, state, starts)
        return Opinion(parameters, values, self.head.judge(parameters, actions, masks))

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
