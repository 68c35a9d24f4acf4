"""What the backends inside this process share: replies made one's own, and nothing ahead."""

from __future__ import annotations

import copy
from typing import Any

from shoal.engine.commands import Reply, Step
from shoal.engine.infos import OddInfo


class NothingAhead:
    """A worker that takes one command at a time and nothing ahead."""

    takes_ahead = False

    def put_ahead(self, command: Step) -> None:
        assert self.takes_ahead

    def is_put_ahead(self) -> bool:
        return False

    def take_quietly(self) -> bool:
        return False

    def is_idle(self) -> bool:
        return True

    def go_on(self) -> None:
        pass

    def call_back(self) -> None:
        pass


def own(reply: Reply) -> Reply:
    """The reply with infos and objects copied, so that an environment's later changes stay away.

    Results of `call` are handed over as they are: who calls into the same process may well want
    the very object.
    """
    reply.odd_infos = [OddInfo(i, path, _copy(value)) for i, path, value in reply.odd_infos]
    reply.objects = {env_id: _copy(parts) for env_id, parts in reply.objects.items()}
    reply.final_objects = {env_id: _copy(parts) for env_id, parts in reply.final_objects.items()}
    return reply


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return value  # a lock, a module, a generator: nothing that could be copied
