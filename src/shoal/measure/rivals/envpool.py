"""envpool: not yet."""

from shoal.measure.session import Contestant

CONTESTANTS: tuple[Contestant, ...] = ()
