"""Weights & Biases: exactly one run, made in the caller's process, online or offline."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from shoal.errors import ConfigError
from shoal.extras import needs
from shoal.monitor.sink import Metrics

logger = logging.getLogger("shoal")


def check_installed() -> None:
    """ConfigError where it is not, for those who want to know before anything begins."""
    with needs("wandb", "wandb"):
        import wandb  # noqa: F401


class WeightsAndBiases:
    """A sink for one run of Weights & Biases, which begins here and ends with `close`.

    `mode` is "online", "offline" or "disabled"; None leaves it to WANDB_MODE. Its files go into
    `folder`. A resumed run passes the `run_id` of the earlier one. A run that the user has begun
    with wandb itself is left alone. ConfigError where wandb is not installed, or no run can begin.
    """

    def __init__(
        self,
        project: str,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        mode: str | None = None,
        run_id: str | None = None,
    ) -> None:
        with needs("wandb", "wandb"):
            import wandb
        given = {"project": project, "name": name, "config": dict(config or {}), "mode": mode}
        if run_id is not None:
            given |= {"id": run_id, "resume": "allow"}
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)  # or else wandb would use /tmp
            given["dir"] = str(folder)
        self._pid = os.getpid()
        self._error: type[Exception] = wandb.Error
        self._run = _begin(wandb, given)
        self.run_id: str = self._run.id
        logger.info("Weights & Biases: %s", self)

    def __str__(self) -> str:
        return str(self._run.dir if self._run.offline else self._run.url)

    def write(self, step: int, metrics: Metrics) -> None:
        self._check_process()
        try:
            self._run.log(dict(metrics), step=int(step))
        except self._error as problem:
            raise OSError(f"wandb: {problem}") from problem

    def close(self) -> None:
        if os.getpid() == self._pid:  # a forked copy must not end what is not its own
            self._run.finish()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run of Weights & Biases stays in the process that began it")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise OSError(f"this run of Weights & Biases belongs to process {self._pid}")


def _begin(wandb: Any, given: dict[str, Any]) -> Any:
    # The screen is the console's: wandb neither wraps it nor writes to it.
    settings = wandb.Settings(console="off", silent=True)
    try:
        return wandb.init(**given, reinit="create_new", settings=settings)
    except wandb.Error as problem:
        raise ConfigError(
            f"Weights & Biases could not begin a run of {given['project']!r}: {problem}. "
            "Log in with `wandb login`, or set WANDB_MODE=offline."
        ) from problem
