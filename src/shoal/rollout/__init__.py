"""Rollouts: frozen records of what some environments went through, and who makes them.

Collectors produce rollouts and learners consume them; neither knows the other.
"""
