"""A run from start to end: sinks, checkpoints, evaluation, the loop, and what is left behind.

Nothing here knows which algorithm it is.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shoal.algos.agent import Agent
from shoal.algos.company import Company
from shoal.errors import ConfigError
from shoal.monitor import (
    Console,
    JsonLines,
    Lines,
    Sink,
    Steadfast,
    TensorBoard,
    Undertaking,
    WeightsAndBiases,
    draw,
    whole,
)
from shoal.monitor.jsonl import truncate_after
from shoal.rollout.collector import Collector
from shoal.training import save
from shoal.training.checkpoint import Checkpoint
from shoal.training.config import OutputConfig
from shoal.training.evaluate import Evaluation
from shoal.training.folder import Folder
from shoal.training.loop import Callback, Learner, Progress, learn, shares_of
from shoal.training.watch import LATEST, Doubt, Evaluate, Every, Save, Signals

log = logging.getLogger("shoal")

BEST, FINAL = "best_model", "final_model"

Shown = Console | Lines
CONSOLES: Mapping[str, type[Shown]] = {"display": Console, "lines": Lines}
"""The ways to look on, as `console` names them."""


class Training(Protocol):
    """What an algorithm makes of a configuration and environments."""

    agent: Agent | Company
    source: Collector[Any]
    progress: Progress

    @property
    def learner(self) -> Learner[Any]: ...

    def checkpoint(self) -> Checkpoint: ...

    def evaluate(self, num_episodes: int) -> Evaluation: ...

    def film(self, path: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Run:
    """What a run has left."""

    folder: Path
    agent: Agent | Company
    summary: Mapping[str, Any]
    evaluation: Evaluation
    """Of the policy that it ended with."""


class Conduct:
    """One run, from start to end."""

    def __init__(
        self,
        training: Training,
        folder: Folder,
        output: OutputConfig,
        undertaking: Undertaking,
        config: Mapping[str, Any],
        alone_steps_per_s: float | None = None,
    ) -> None:
        self._training, self._folder, self._output = training, folder, output
        self._undertaking, self._config = undertaking, config
        self._alone = alone_steps_per_s
        self._begun = time.perf_counter()

    def run(self, callbacks: Sequence[Callback], shows: bool) -> Run:
        """All of it. After Ctrl-C the update under way is finished, and the summary says so.

        A second Ctrl-C, or one while the run is brought to its end, is KeyboardInterrupt at once;
        what was written before is whole. Whatever an environment or a callback raises is raised,
        with a note that says where to go on: what was learnt until then is kept.
        """
        with ExitStack() as until_done:
            console = CONSOLES[self._output.console](self._undertaking) if shows else None
            sinks = [until_done.enter_context(closing(one)) for one in self._sinks(console)]
            progress = self._training.progress
            progress.sinks = sinks
            watch, doubt = self._evaluating(), Doubt(log.warning)
            try:
                self._learn(progress, [doubt, watch, self._saving(), *callbacks])
                is_saved = self._save_final()
                evaluation = watch.now(progress)
                doubt(progress)
            except Exception as problem:
                self._rescue(progress, problem)
                raise
            return self._finish(progress, evaluation, console, is_saved)

    def _learn(self, progress: Progress, callbacks: Sequence[Callback]) -> None:
        signals = Signals(log.warning)
        with signals.heeded():
            learn(self._training.source, self._training.learner, progress, [*callbacks, signals])
        if not progress.num_updates:
            log.warning(
                "nothing was left to learn: at step %d the goal was reached already. Set one that "
                "is further away with --total-steps or --num-episodes.",
                progress.step,
            )

    def _sinks(self, console: Shown | None) -> list[Sink]:
        output, root, begun = self._output, self._folder.root, self._undertaking.first_step
        if begun:
            _forget_after(self._folder.metrics, begun)
        sinks: list[Sink] = [JsonLines(self._folder.metrics)]
        if output.tensorboard:
            sinks.append(TensorBoard(root, begun or None))
        if output.wandb:
            sinks.append(self._weights_and_biases())
        steadfast: list[Sink] = [Steadfast(one) for one in sinks]
        return [*steadfast, console] if console is not None else steadfast

    def _weights_and_biases(self) -> Sink:
        """One run there for one here, also when it goes on in its folder."""
        root, kept = self._folder.root, self._folder.wandb_id
        run_id = kept.read_text().strip() if kept.is_file() else None
        project = self._output.wandb_project
        sink = WeightsAndBiases(project, root.name, self._config, root, run_id=run_id)
        self._attempt("wandb_id.txt", lambda: whole.write(kept, [f"{sink.run_id}\n".encode()]))
        return sink

    def _save(self, name: str, **about: Any) -> bool:
        made = self._training.checkpoint()
        about[save.RUN] = str(self._folder.root.absolute())
        noted = Checkpoint(made.tensors, {**made.about, **about})
        return save.try_to_write(self._folder.checkpoint(name), noted)

    def _save_final(self) -> bool:
        """What was kept up to date until now is of no use any more."""
        is_saved = self._save(FINAL)
        if is_saved:
            with suppress(OSError):
                self._folder.checkpoint(LATEST).unlink()
        return is_saved

    def _rescue(self, progress: Progress, problem: Exception) -> None:
        """Keep what was learnt before a run broke off, and note on its problem where that is."""
        is_saved = False
        if progress.num_updates:
            try:
                is_saved = self._save(FINAL)
            except Exception as another:  # the run's own problem is the one to be raised
                log.warning("what was learnt could not be saved: %s", another)
        self._leave(self._summary(progress, None, is_saved, problem))
        if is_saved:
            problem.add_note(
                f"What was learnt until step {progress.step:,} is saved. When the cause is mended, "
                f"go on with --resume-from {self._folder.root}"
            )

    def _saving(self) -> Save:
        begun_s = self._training.progress.metrics.get("run/time_s", 0.0)
        by_seconds = Every(60.0 * self._output.save_every_minutes, begun_s)
        return Save(self._every(self._output.save_every), by_seconds, self._save)

    def _evaluating(self) -> Evaluate:
        count, is_resumed = self._output.eval_episodes, self._undertaking.first_step > 0
        best = self._folder.checkpoint(BEST)
        return Evaluate(
            self._every(self._output.eval_every),
            lambda: self._training.evaluate(count),
            lambda found: self._save(BEST, **{save.EVALUATION: found.metrics()}),
            save.score_of(best) if is_resumed else -math.inf,
        )

    def _every(self, interval: int) -> Every:
        return Every(interval, self._undertaking.first_episode)

    def _finish(
        self, progress: Progress, evaluation: Evaluation, console: Shown | None, is_saved: bool
    ) -> Run:
        summary = self._summary(progress, evaluation, is_saved)
        self._leave(summary)
        self._film()
        if console is not None:
            console.finish(_in_words(summary), self._written())
        return Run(self._folder.root, self._training.agent, summary, evaluation)

    def _summary(
        self,
        progress: Progress,
        evaluation: Evaluation | None,
        is_saved: bool,
        problem: Exception | None = None,
    ) -> dict[str, Any]:
        """Of this part of the run, where it was gone on with; counters are of all of it."""
        seconds, latest = time.perf_counter() - self._begun, progress.metrics
        begun = self._undertaking
        working_s, episodes = progress.working_s or seconds, int(latest.get("run/episodes", 0))
        pace = (progress.step - begun.first_step) / working_s
        return {
            "steps": progress.step,
            "episodes": episodes,
            "seconds": round(seconds, 3),
            "steps_per_s": round(pace, 1),
            "episodes_per_s": round((episodes - begun.first_episode) / working_s, 3),
            "one_env_steps_per_s": self._alone and round(self._alone, 1),
            "speedup": self._alone and round(pace / self._alone, 2),
            "shares_of_time": shares_of(progress.spent_s),
            "restarts": int(latest.get("engine/restarts", 0)),
            "replays": int(latest.get("engine/replays", 0)),
            "incidents": self._training.source.envs.stats()["incidents"],
            "stopped_by": progress.stopped_by,
            "error": None if problem is None else f"{type(problem).__name__}: {problem}",
            "evaluation": None if evaluation is None else evaluation.metrics(),
            "evaluated_by": "drawn" if self._output.eval_stochastic else "most probable",
            "is_saved": is_saved,
        }

    def _leave(self, summary: Mapping[str, Any]) -> None:
        """Write what tells of the run; a disk that is full does not take the result away."""
        text = json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n"
        self._attempt("summary", lambda: whole.write(self._folder.summary, [text.encode()]))
        self._attempt("curves", lambda: draw(self._folder.metrics, self._folder.curves))

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, ConfigError) as problem:
            cause = getattr(problem, "strerror", None) or problem
            log.warning("no %s in %s: %s", what, self._folder.root, cause)

    def _film(self) -> None:
        """The final policy, if that can be shown."""
        try:
            self._folder.videos.mkdir(exist_ok=True)
            self._training.film(self._folder.film("final"))
        except Exception as problem:  # whatever the environment raises: the run is over
            log.warning("there is no video of the final policy: %s", problem)
        finally:
            with suppress(OSError):  # not empty: there is one
                self._folder.videos.rmdir()

    def _written(self) -> dict[str, Path]:
        folder = self._folder
        paths = {
            "folder": folder.root,
            "best model": folder.checkpoint(BEST),
            "final model": folder.checkpoint(FINAL),
            "curves": folder.curves,
            "video": folder.film("final"),
            "summary": folder.summary,
        }
        return {name: path for name, path in paths.items() if path.exists()}


def _forget_after(metrics: Path, step: int) -> None:
    """Rows that a resumed run will write again go; ConfigError where they cannot."""
    try:
        truncate_after(metrics, step)
    except OSError as problem:
        raise ConfigError(
            f"what was written after step {step} cannot be taken out of {metrics}: "
            f"{problem.strerror}. Make room, or go on from one of its checkpoints: that begins a "
            "folder of its own, where --run-dir says."
        ) from problem


def _finite(value: Any) -> Any:
    """The same for JSON, which has neither NaN nor infinity: null stands for them."""
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _speedup(summary: Mapping[str, Any]) -> dict[str, str]:
    alone = summary["one_env_steps_per_s"]
    if alone is None:
        return {}
    return {"speedup": f"{summary['speedup']:.1f} times one environment ({alone:,.0f} steps/s)"}


def _in_words(summary: Mapping[str, Any]) -> dict[str, str]:
    found, shares = summary["evaluation"], summary["shares_of_time"]
    spent = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    words = {
        "steps": f"{summary['steps']:,}",
        "episodes": f"{summary['episodes']:,}",
        "time": f"{summary['seconds']:.1f} s",
        "speed": (
            f"{summary['steps_per_s']:,.0f} steps/s, {summary['episodes_per_s']:,.1f} episodes/s"
        ),
        "time spent": spent,
        **_speedup(summary),
        "evaluation": (
            f"{found['eval/return_mean']:.1f} ± {found['eval/return_std']:.1f} "
            f"over {found['eval/episodes']} episodes, {summary['evaluated_by']} actions"
        ),
    }
    if summary["restarts"] or summary["replays"]:
        words["lost workers"] = f"{summary['replays']} replayed, {summary['restarts']} restarted"
    if not summary["is_saved"]:
        words["not saved"] = "the final model could not be written"
    if summary["stopped_by"]:
        words["stopped by"] = str(summary["stopped_by"])
    return words
