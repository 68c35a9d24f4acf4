"""What stands in the rows of agents that are not there, and what their episodes ended with.

As AgileRL's loops want it: they take an episode for over when all of its agents have ended, those
who left it earlier among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.layout import Array
from shoal.vector.agents.cast import Cast
from shoal.vector.agents.reading import Reading, TeamBatch, batched


def fill_flags(batch: TeamBatch, reading: Reading, is_over: Array, *, wants_nan: bool) -> None:
    """Write into rewards and flags of agents that are not there; `is_over` is by environment.

    Whoever is gone is terminated, while somebody who lives and was told nothing is not; or else
    all that nothing is known of is NaN.
    """
    if reading.rewarded.all():
        return
    absent = ~reading.rewarded
    gone = reading.columns(absent & (~reading.alive | is_over[:, None]))
    if not wants_nan:
        for name, is_gone in gone.items():
            batch.terminations[name][is_gone & ~batch.truncations[name]] = True
        return
    for name, is_absent in reading.columns(absent).items():
        if is_absent.any():
            for values in (batch.rewards, batch.terminations, batch.truncations):
                unknown = is_absent & (values[name] == 0)
                values[name] = np.where(unknown, np.nan, values[name])


def fill_nan(observations: Any, rows: Array) -> Any:
    """Observations with NaN in these rows, where they are floats; what was given is kept."""
    if isinstance(observations, dict):
        return {key: fill_nan(one, rows) for key, one in observations.items()}
    if isinstance(observations, tuple):
        return tuple(fill_nan(one, rows) for one in observations)
    if not rows.any() or getattr(observations, "dtype", np.dtype(object)).kind != "f":
        return observations
    filled = observations.copy()
    filled[rows] = np.nan
    return filled


def ended_with(infos: dict[str, Any], cast: Cast, told: Array) -> None:
    """Move what episodes ended with to the agents: AgileRL takes every dict here for an agent's."""
    last, ended = infos.pop("final_obs", None), infos.pop("_final_obs", None)
    said = infos.pop("final_info", {})
    infos.pop("_final_info", None)
    if last is None:
        return
    for name, k in cast.number.items():
        its_own = ended & told[:, k]
        each = [one[name] if is_own else None for one, is_own in zip(last, its_own, strict=True)]
        infos[name]["final_obs"] = batched(cast.observation_spaces[k], each)
        infos[name]["_final_obs"] = its_own
        if name in said:
            infos[name]["final_info"] = said[name]
            infos[name]["_final_info"] = said[f"_{name}"]
