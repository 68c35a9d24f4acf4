"""How fast whole training is, start to end: `python -m benchmarks.train TABLE`.

    against     steps/s against Stable-Baselines3's PPO in the same training, on a CPU
    speedup     steps/s with 1, 4, 8 and 16 environments, and how many times as fast as with one
    threshold   seconds until CartPole is solved, start-up included, against Stable-Baselines3
    wallclock   seconds of `make train-cartpole` and `make train` in a bare clone, and again
    gpu         steps/s from frames, what the GPU does meanwhile, and the floor
    ablate      one gradient in several ways; on a GPU, training without one part or another
    report      the tables once more, from records

Each measurement is a process of its own, all in turn. It leaves a record (JSON) and a table
(Markdown), and asserts nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks import plan as suite
from benchmarks.run import without_folder
from benchmarks.training import plan, wallclock
from benchmarks.training.contest import contest
from benchmarks.training.report import markdown
from benchmarks.training.task import Answer, Record
from benchmarks.training.wallclock import COMMANDS
from shoal.errors import suggest


def main(arguments: Sequence[str] | None = None) -> int:
    asked = list(sys.argv[1:] if arguments is None else arguments)
    given = parse(asked)
    if given.table == "report":
        for file in given.files:
            write(Record.from_json(file.read_text()), file.parent)
        return 0
    answers, total = measured(given)
    record = Record.begin(given.table, ["python", "-m", "benchmarks.train", *without_folder(asked)])
    begun = time.monotonic()
    for number, answer in enumerate(answers, 1):
        record.answers.append(answer)
        print(f"[{number}/{total}, {time.monotonic() - begun:.0f} s] {line(answer)}", flush=True)
        write(record, given.out)  # what is cut off leaves what it has
    print("\n" + markdown(record))
    return 0


def measured(given: argparse.Namespace) -> tuple[Iterator[Answer], int]:
    """One answer after the other, and how many there will be."""
    if given.table == "wallclock":
        total = 2 * given.repeats * len(given.targets)
        return wallclock.measure(given.repeats, given.targets), total
    groups = planned(given)
    total = given.repeats * sum(map(len, groups))
    return contest(groups, given.repeats, 60 * given.patience), total


def planned(given: argparse.Namespace) -> plan.Groups:
    if given.table == "against":
        return plan.against(given.envs, given.n_envs, given.contestants, given.steps)
    if given.table == "speedup":
        return plan.speedup(given.envs, given.n_envs, given.contestants, given.rollout, given.steps)
    if given.table == "threshold":
        return plan.threshold(given.contestants)
    if given.table == "ablate":
        return plan.ablate(given.batch_sizes, given.compile, given.device, given.steps)
    return plan.gpu(given.n_envs, given.contestants, given.rollout, given.steps, given.device)


def line(answer: Answer) -> str:
    """One measurement, as it is told while others follow."""
    task, numbers = answer.task, answer.numbers
    what = f"{suite.name_of(task.env)} {task.n_envs} envs, {task.contestant}"
    if answer.skipped:
        return f"{what}: skipped, {answer.skipped}"
    if task.threshold is None:
        return f"{what}: {numbers['steps_per_s']:,.0f} steps/s"
    if "reached_s" in numbers:
        return f"{what}, seed {task.seed}: reached after {numbers['reached_s']:.1f} s"
    return f"{what}, seed {task.seed}: not reached in {numbers['whole_s']:.1f} s"


def write(record: Record, folder: Path) -> None:
    """JSON and Markdown, next to each other."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{record.stem}.json").write_text(record.to_json())
    (folder / f"{record.stem}.md").write_text(markdown(record))


# --- what was asked -----------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tables = parser.add_subparsers(dest="table", required=True, metavar="TABLE")
    against = _table(tables, "against", repeats=3, steps=40_000)
    _names(against, "--envs", plan.AGAINST)
    _counts(against, plan.AGAINST_ENVS)
    _names(against, "--contestants", [plan.OURS, *_sb3(), plan.FLOOR])
    speedup = _table(tables, "speedup", repeats=3, steps=20_000)
    _names(speedup, "--envs", plan.SPEEDUP)
    _counts(speedup, plan.SPEEDUP_ENVS)
    _names(speedup, "--contestants", [plan.OURS, plan.OVERLAP])
    speedup.add_argument("--rollout", type=int, default=2048, help="steps between two updates")
    threshold = _table(tables, "threshold", repeats=5)
    _names(threshold, "--contestants", [plan.OURS, plan.AS_IT_COMES, *_sb3()])
    wall = _table(tables, "wallclock", repeats=1)
    wall.add_argument("--targets", nargs="+", default=list(COMMANDS), choices=list(COMMANDS))
    gpu = _table(tables, "gpu", repeats=2, steps=5 * 8192)
    _counts(gpu, plan.PIXELS_ENVS)
    _names(gpu, "--contestants", [plan.OURS, plan.OVERLAP])
    gpu.add_argument("--rollout", type=int, default=8192, help="steps between two updates")
    gpu.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    ablate = _table(tables, "ablate", repeats=3, steps=5 * 8192)
    sizes = list(plan.GRADIENT_SIZES)
    ablate.add_argument("--batch-sizes", nargs="+", type=int, default=sizes, metavar="N")
    ablate.add_argument("--compile", action="store_true", help="torch.compile, too; a minute each")
    ablate.add_argument("--device", default="cpu", choices=["cuda", "cpu"])
    report = tables.add_parser("report")
    report.add_argument("files", nargs="+", type=Path, metavar="FILE", help="records to read")
    given = parser.parse_args(arguments)
    _check_names(parser, given)
    return given


def _table(
    tables: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    repeats: int,
    steps: int | None = None,
) -> argparse.ArgumentParser:
    parser = tables.add_parser(name)
    parser.add_argument("--repeats", type=int, default=repeats, help=f"rounds (default {repeats})")
    said = "minutes to wait, all in all, for a machine that nobody else uses"
    parser.add_argument("--patience", type=float, default=0.0, help=said)
    parser.add_argument("--out", type=Path, default=suite.RESULTS, help="folder for the results")
    if steps is not None:
        said = f"measured after the first update (default {steps:,})"
        parser.add_argument("--steps", type=int, default=steps, help=said)
    return parser


def _names(parser: argparse.ArgumentParser, flag: str, known: Iterable[str]) -> None:
    names = list(known)
    parser.add_argument(
        flag, nargs="+", default=names, metavar="NAME", help=f"of {'; '.join(names)}"
    )


def _counts(parser: argparse.ArgumentParser, counts: Sequence[int]) -> None:
    parser.add_argument("--n-envs", nargs="+", type=int, default=list(counts), metavar="N")


def _sb3() -> list[str]:
    """Nobody, where it is not installed."""
    is_here = importlib.util.find_spec("stable_baselines3") is not None
    return list(plan.SB3) if is_here else []


def _check_names(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    courses = {"against": plan.AGAINST, "speedup": plan.SPEEDUP}
    known = {
        "env": (getattr(given, "envs", ()), courses.get(given.table, ())),
        "contestant": (getattr(given, "contestants", ()), [*plan.SHOAL, *plan.SB3, *plan.FLOORS]),
    }
    for kind, (asked, there) in known.items():
        for name in asked:
            if name not in there:
                parser.error(f"there is no {kind} {name!r}. {suggest(name, there)}")


if __name__ == "__main__":
    sys.exit(main())
