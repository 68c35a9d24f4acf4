"""The same agents, acting in other ways: in turn, all at once, or as one.

as_parallel(aec_env)                an environment of turns, as a team that acts at once
as_aec(parallel_env)                a team, as agents that take turns
FlattenMultiAgentWrapper(env)       either of them, as one Gymnasium environment
"""

from __future__ import annotations

from shoal.extras import needs

with needs("pettingzoo", "multiagent"):
    from shoal.envs.conversions.flat import FlattenMultiAgentWrapper
    from shoal.envs.conversions.team import as_parallel
    from shoal.envs.conversions.turns import as_aec

__all__ = ["FlattenMultiAgentWrapper", "as_aec", "as_parallel"]
