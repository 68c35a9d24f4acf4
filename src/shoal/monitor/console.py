"""What a person sees while a run is under way.

On a terminal, and in a notebook that has widgets: a display that is drawn over itself, with lines
above it for what happens only now and then. Anywhere else: plain lines, a few at a time. The
display has no thread; it is drawn when there is something new.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import rich.console
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.monitor import progress as words
from shoal.monitor.progress import Progress, Undertaking
from shoal.monitor.sink import Metrics
from shoal.monitor.speaker import GONE, Speaker

DRAW_EVERY_S = 0.1
"""More often is not seen, and a drawing costs about a millisecond."""


def is_seen() -> bool:
    """Whether somebody looks on: at a terminal, or in a notebook."""
    screen = rich.console.Console()
    return screen.is_jupyter or screen.file.isatty()


class Console:
    """A sink for people; says what is about to happen as soon as it is made.

    When its stream is gone it falls silent, and the run goes on.
    """

    def __init__(self, run: Undertaking, screen: rich.console.Console | None = None) -> None:
        self._speaker = Speaker(screen, self._leave)
        self._screen = self._speaker.screen
        self._progress = Progress(run, self._screen.get_time)
        self._live = self._make_live()
        self._drawn_s = -DRAW_EVERY_S
        self._is_closed = False
        self._speaker.say(*words.opening(run))

    def __str__(self) -> str:
        return "the console"

    def write(self, step: int, metrics: Metrics) -> None:
        if self._is_closed:
            return
        restarts = self._progress.latest.get("engine/restarts", 0)
        self._progress.take(step, metrics)
        if metrics.get("engine/restarts", 0) > restarts:
            self._speaker.say(words.restarted(restarts, metrics["engine/restarts"]))
        if "eval/return_mean" in metrics:
            self._speaker.say(words.evaluation(metrics))
        if self._live is not None:
            self._draw(self._live)
        elif self._progress.is_due():
            self._progress.mark_told()
            self._speaker.say(words.one_line(self._progress))

    def close(self) -> None:
        """Leave the terminal as it was, with the last state of the display on it."""
        self._is_closed = True
        live, self._live = self._live, None
        if live is not None and live.is_started:
            self._speaker.attempt(live.refresh)  # in a notebook stopping draws nothing
            self._speaker.attempt(live.stop)

    def finish(self, summary: Mapping[str, str], paths: Mapping[str, Path]) -> None:
        """Close, and say what came out of it and where that was written."""
        self.close()
        if summary:
            table = Table("Summary", "", box=SIMPLE_HEAD)
            for name, value in summary.items():
                cells = (self._speaker.encodable(cell) for cell in (name, value))
                table.add_row(*(Text(cell, overflow="fold") for cell in cells))
            self._speaker.attempt(partial(self._screen.print, table))
        if paths:
            self._speaker.say("Written:", *(f"  {line}" for line in words.aligned(paths)))

    # --- showing -------------------------------------------------------------------------------

    def _make_live(self) -> Live | None:
        screen = self._screen
        widgets = screen.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
        if not widgets and not (screen.is_terminal and screen.is_interactive):
            return None
        return Live(console=screen, auto_refresh=False, get_renderable=self._picture)

    def _draw(self, live: Live) -> None:
        now_s = self._screen.get_time()
        if now_s - self._drawn_s < DRAW_EVERY_S:
            return
        self._drawn_s = now_s
        draw = live.refresh if live.is_started else partial(live.start, refresh=True)
        self._speaker.attempt(draw)

    def _leave(self) -> None:
        """Nobody looks on any more: the stream of the process is not this display's."""
        if self._live is not None:
            with suppress(*GONE):
                self._live.stop()

    def _picture(self) -> RenderableType:
        progress = self._progress
        lines = [words.rewards(progress), f"{words.completed(progress)}{self._restarts()}"]
        table = Table.grid(padding=(0, 2))
        for group, numbers in words.details(progress).items():
            table.add_row(Text(group, style="dim"), Text(self._speaker.encodable(numbers)))
        known = map(self._speaker.encodable, lines)
        texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in known]
        return Group(self._bar(), *texts, table)

    def _bar(self) -> RenderableType:
        progress, share = self._progress, self._progress.share()
        cells: list[RenderableType] = [Text(progress.position(), style="bold")]
        if share is not None:
            cells += [ProgressBar(total=1.0, completed=share), f"{share:.0%}"]
        grid = Table.grid(padding=(0, 2), expand=share is not None)
        for is_bar in itertools.islice((False, True, False), len(cells)):
            grid.add_column(ratio=1 if is_bar else None, no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_row(*cells, Text(words.pace(progress)))
        return grid

    def _restarts(self) -> str:
        count = self._progress.latest.get("engine/restarts")
        return "" if count is None else f" | restarts: {words.whole_figure(count)}"
