"""`make results`: what PPO learns here and in Stable-Baselines3, side by side.

To be read in this order: tasks, worlds, trial, ours, sb3, rows, one, run, intervals, plots, report.
"""
