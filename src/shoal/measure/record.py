"""The file that a run leaves: the machine, what was asked, and every outcome."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shoal.measure.contest import Outcome
from shoal.measure.fingerprint import Machine, fingerprint

SCHEMA = 1


@dataclass(slots=True)
class Record:
    """A run, as it is kept."""

    machine: Machine
    begun: str
    asked: str
    """The command that regenerates it."""
    outcomes: list[Outcome] = field(default_factory=list)

    @classmethod
    def begin(cls, command: Sequence[str]) -> Record:
        now = datetime.datetime.now(datetime.UTC)
        return cls(fingerprint(), now.strftime("%Y-%m-%d %H:%M UTC"), shlex.join(command))

    @property
    def stem(self) -> str:
        """What its files are called."""
        return f"{self.machine.name}-{self.begun[:10]}"

    def to_json(self) -> str:
        content = {
            "schema": SCHEMA,
            "machine": asdict(self.machine),
            "begun": self.begun,
            "asked": self.asked,
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }
        return json.dumps(_rounded(content), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        content = json.loads(text)
        outcomes = [Outcome.from_dict(one) for one in content["outcomes"]]
        return cls(Machine(**content["machine"]), content["begun"], content["asked"], outcomes)


def _rounded(value: Any) -> Any:
    """Six digits: more are noise, and make files that nobody wants to compare."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return value
