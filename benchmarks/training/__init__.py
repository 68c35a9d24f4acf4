"""How fast whole training is: what `python -m benchmarks.train` measures, and how.

    plan ──► tasks ──► contest: each in a process of its own, in turn ──► child
    child ──► ours · sb3 · floor · ablate ──► watch ──► numbers ──► record ──► report

To be read in this order: task, plan, watch, ours, sb3, gpu, floor, ablate, child, contest,
group, report.
"""
