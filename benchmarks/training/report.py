"""From a record to Markdown: pure functions, so that a table can be written again from its JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.plan import name_of
from benchmarks.report import machine_lines
from benchmarks.training.group import SHARES, Group, between, named, shares
from benchmarks.training.plan import AGAINST, CLAIMED, FLOORS, GRADIENTS, OURS, OVERLAP
from benchmarks.training.task import Answer, Numbers, Record, middle
from shoal.measure import Job, Row, Spread, best, paired_ratio
from shoal.measure.summary import disturbance
from shoal.measure.table import NONE, as_markdown, count, seconds, times


def markdown(record: Record) -> str:
    """The whole report."""
    title, section = _KINDS[record.kind]
    groups = [Group.of(answers) for answers in _by_place(record)]
    parts = [
        f"# {title}, {record.begun}",
        machine_lines(record.machine),
        disturbance(one.outcome for one in record.answers),
        f"Regenerate: `{record.asked}`",
        *section(groups),
        *(f"Not measured: {line}" for group in groups for line in group.skips()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _by_place(record: Record) -> list[list[Answer]]:
    """Answers that are compared: for the speedup all numbers of environments, else one."""
    groups: dict[tuple[str, int], list[Answer]] = {}
    for one in record.answers:
        n_envs = 0 if record.kind == "speedup" else one.task.n_envs
        groups.setdefault((one.task.env, n_envs), []).append(one)
    return list(groups.values())


# --- against Stable-Baselines3 ------------------------------------------------------------------


def _against(groups: Sequence[Group]) -> Iterable[str]:
    yield (
        "Steps of all environments per second, from the end of the first update on; *start* is "
        "from the start of the interpreter to there. Ratios are of the same round. The *floor* is "
        "what the matrix products of the same network and batches take alone."
    )
    yield as_markdown(_VERDICT_HEADERS, [_verdict(group) for group in groups])
    for group in groups:
        task = group.answers[0].task
        yield f"## {group.title}"
        yield (
            f"{task.n_steps} steps of each between two updates, {task.n_epochs} epochs, batches "
            f"of {task.batch_size}."
        )
        yield as_markdown(_PACE_HEADERS, [_pace_cells(group, row) for row in group.fastest_first()])


_VERDICT_HEADERS = (
    "",
    "Shoal",
    "SB3 at its best",
    "ratio",
    "lowest to highest",
    "asked",
    "",
    "SB3's processor time to Shoal's",
)


def _verdict(group: Group) -> list[str]:
    ours, theirs = group.ours(), group.rival()
    ratio = paired_ratio(ours, theirs) if ours and theirs else None
    asked = AGAINST[group.answers[0].task.env].asked
    return [
        group.title,
        f"{count(ours.steps_per_s)} ({named(ours)})" if ours else NONE,
        f"{count(theirs.steps_per_s)} ({theirs.job.contestant})" if theirs else NONE,
        times(ratio.median if ratio else None),
        between(ratio, times),
        f"≥ {asked:g}",
        _judged(ratio, asked),
        times(_processor_times(ours, theirs)),
    ]


def _processor_times(ours: Row | None, theirs: Row | None) -> float | None:
    """What a busy machine says least wrongly."""
    own_s, other_s = (row.middle.cpu_s_per_million if row else None for row in (ours, theirs))
    return None if own_s is None or other_s is None else other_s / own_s


def _judged(ratio: Spread | None, asked: float) -> str:
    if ratio is None:
        return "not measured"
    is_met = ratio.median >= asked
    return "met" if is_met else f"not met, off by {(asked - ratio.median) / asked:.0%}"


_PACE_HEADERS = (
    "",
    "steps/s",
    "lowest to highest",
    "to SB3's best",
    "start",
    "100,000 steps, start included",
    "one update",
    "CPU s per million",
    *SHARES,
)


def _pace_cells(group: Group, row: Row) -> list[str]:
    found, rival = group.middle(row.job), group.rival()
    ratio = paired_ratio(row, rival) if rival else None
    return [
        named(row),
        count(row.steps_per_s),
        between(row.spread, count),
        times(ratio.median if ratio else None),
        seconds(found.get("start_s")),
        seconds(_whole_s(found, 100_000)),
        seconds(found.get("update_s")),
        count(found.get("cpu_s_per_million")),
        *shares(found),
    ]


def _whole_s(found: Numbers, steps: int) -> float | None:
    """How long a run of so many steps takes, by how it starts and how fast it goes on."""
    if "start_s" not in found:
        return None
    first = found["whole_steps"] - (found["whole_s"] - found["start_s"]) * found["steps_per_s"]
    return found["start_s"] + (steps - first) / found["steps_per_s"]


# --- one environment and more -------------------------------------------------------------------


def _speedup(groups: Sequence[Group]) -> Iterable[str]:
    yield (
        "Steps of all environments per second of the whole training, from the end of the first "
        "update on. A rollout holds as many steps whatever the number of environments, so that "
        "learning costs the same. *Overlap*: half of the environments step while the policy "
        "decides about the others. *Claimed* is what others say they reach on enough cores."
    )
    for group in groups:
        task = group.answers[0].task
        yield f"## {name_of(task.env)}"
        yield (
            f"{task.rollout} steps between two updates, {task.n_epochs} epochs, batches of "
            f"{task.batch_size}."
        )
        yield as_markdown(_SPEEDUP_HEADERS, [_speedup_cells(group, row) for row in group.rows])


_SPEEDUP_HEADERS = (
    "environments",
    "where",
    "steps/s",
    "lowest to highest",
    "speedup",
    "lowest to highest",
    "claimed",
    "start",
    *SHARES,
)


def _speedup_cells(group: Group, row: Row) -> list[str]:
    alone = best(group.rows, lambda one: one.job.num_envs == 1)
    how = ", overlap" if row.job.contestant == OVERLAP else ""
    ratio, found = paired_ratio(row, alone) if alone else None, group.middle(row.job)
    return [
        f"{row.job.num_envs}{how}",
        row.middle.note or NONE,
        count(row.middle.steps_per_s),
        between(row.spread, count),
        times(ratio.median if ratio else None),
        between(ratio, times),
        times(CLAIMED.get(row.job.num_envs)),
        seconds(found.get("start_s")),
        *shares(found),
    ]


# --- to a threshold -----------------------------------------------------------------------------


def _threshold(groups: Sequence[Group]) -> Iterable[str]:
    for group in groups:
        task = group.answers[0].task
        yield (
            f"{name_of(task.env)} with {task.n_envs} environments until the mean return of the "
            f"latest hundred training episodes is {task.threshold:g}, within {task.steps:,} steps; "
            "from the start of the interpreter. Each round has another seed, and each library its "
            "own tuned settings."
        )
        yield as_markdown(_THRESHOLD_HEADERS, [_threshold_cells(group, row) for row in group.rows])
        yield "\n".join(_never(group))


_THRESHOLD_HEADERS = (
    "",
    "got there",
    "seconds",
    "lowest to highest",
    "steps",
    "start",
    "seconds of a whole run",
)


def _threshold_cells(group: Group, row: Row) -> list[str]:
    answers = group.of_job(row.job)
    there = [one for one in answers if "reached_s" in one.numbers]
    spread = Spread.of([one.numbers["reached_s"] for one in there]) if there else None
    rest = [one for one in answers if "reached_s" not in one.numbers]
    return [
        named(row),
        f"{len(there)} of {len(answers)}",
        seconds(spread.median if spread else None),
        between(spread, seconds),
        count(middle(there).get("reached_steps")),
        seconds(middle(answers).get("start_s")),
        seconds(middle(rest).get("whole_s")),
    ]


def _never(group: Group) -> Iterable[str]:
    """A line for each that did not get there."""
    for one in group.answers:
        if not one.skipped and "reached_s" not in one.numbers:
            best_return = one.numbers.get("best")
            said = NONE if best_return is None else f"{best_return:.1f}"
            yield f"- {one.task.contestant}, seed {one.task.seed}: never; {said} at best"


# --- from a bare clone --------------------------------------------------------------------------


def _wallclock(groups: Sequence[Group]) -> Iterable[str]:
    yield (
        "Wall clock of whole commands. In a new clone it installs everything into `.venv` and "
        "trains; again, it only trains. *The run* is the part of it that `summary.json` tells."
    )
    for group in groups:
        jobs = dict.fromkeys(one.task.job for one in group.answers)
        yield as_markdown(_WALLCLOCK_HEADERS, [_wallclock_cells(group, job) for job in jobs])


_WALLCLOCK_HEADERS = ("", "times", "seconds", "the run", "steps", "final policy")


def _wallclock_cells(group: Group, job: Job) -> list[str]:
    found = group.middle(job)
    return [
        job.contestant,
        str(len(group.of_job(job))),
        seconds(found.get("whole_s")),
        seconds(found.get("run_s")),
        count(found.get("whole_steps")),
        f"{found['evaluation']:.1f}" if "evaluation" in found else NONE,
    ]


# --- on a GPU -----------------------------------------------------------------------------------


def _gpu(groups: Sequence[Group]) -> Iterable[str]:
    yield (
        "*Computing* is the share of time in which kernels run, *copying* in which memory is "
        "copied (of one update, by the profiler), *busy* what nvidia-smi says. The floor is what "
        "the matrix products and convolutions take alone, on random data of the same shapes."
    )
    for group in groups:
        task = group.answers[0].task
        yield f"## {group.title}, {task.device}"
        yield (
            f"{task.n_steps} steps of each between two updates, {task.n_epochs} epochs, batches "
            f"of {task.batch_size}."
        )
        yield as_markdown(_GPU_HEADERS, [_gpu_cells(group, row) for row in group.rows])


_GPU_HEADERS = (
    "",
    "steps/s",
    "lowest to highest",
    "one update",
    "Shoal takes",
    *SHARES,
    "computing",
    "copying",
    "busy",
)


def _gpu_cells(group: Group, row: Row) -> list[str]:
    found, ours = group.middle(row.job), group.row(OURS)
    is_floor = row.job.contestant in FLOORS
    ratio = paired_ratio(row, ours) if is_floor and ours else None
    return [
        named(row),
        count(row.middle.steps_per_s),
        between(row.spread, count),
        seconds(found.get("update_s")),
        times(ratio.median if ratio else None),
        *shares(found, (*SHARES, "kernels", "copies", "busy")),
    ]


# --- without one part or another ----------------------------------------------------------------


def _ablate(groups: Sequence[Group]) -> Iterable[str]:
    yield (
        "One gradient of CartPole's network on random data, on one thread: forward, PPO's loss, "
        "back, clipping and Adam. Of each round the shortest of many counts; *the first* may have "
        "to be compiled. Training is that from frames, as it is and without one part."
    )
    for group in groups:
        task = group.answers[0].task
        is_gradient = task.contestant in GRADIENTS
        if is_gradient:
            yield f"## One gradient of {task.batch_size}"
            yield as_markdown(
                _GRADIENT_HEADERS, [_gradient_cells(group, row) for row in group.rows]
            )
        else:
            yield f"## {group.title}, {task.device}"
            yield as_markdown(_GPU_HEADERS, [_gpu_cells(group, row) for row in group.rows])


_GRADIENT_HEADERS = ("", "one", "lowest to highest", "the first")


def _gradient_cells(group: Group, row: Row) -> list[str]:
    each = [one.numbers["gradient_s"] for one in group.of_job(row.job)]
    found = group.middle(row.job)
    return [
        row.job.contestant,
        seconds(found.get("gradient_s")),
        f"{seconds(min(each))} to {seconds(max(each))}" if each else NONE,
        seconds(found.get("first_s")),
    ]


_KINDS = {
    "against": ("Whole training against Stable-Baselines3", _against),
    "speedup": ("Whole training with one environment and with more", _speedup),
    "threshold": ("Time to a threshold", _threshold),
    "wallclock": ("From a bare clone to what was trained", _wallclock),
    "gpu": ("Whole training from frames", _gpu),
    "ablate": ("What each part brings", _ablate),
}
