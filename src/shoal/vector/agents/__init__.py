"""Several agents in one environment: teams that act at once, and agents that take turns.

In reading order: `cast.py` (who there is, and how what they see and do lies in rows), `views.py`,
`inner.py`, `together.py` and `alternating.py` (a PettingZoo environment as the one that the engine
steps), `free.py` (the same for agents that nobody knows beforehand), `reading.py` (back from rows
to agents), `acting.py` (and to rows again), `delegate.py`, `team.py`, `turns.py` and `free_envs.py`
(what users get), `make.py` (how), and `proxies.py` (one environment of many as a PettingZoo one).
For AgileRL's loops there are `skipping.py` (a team some of whose agents do nothing), `orders.py`
and `placeholders.py`.
"""
