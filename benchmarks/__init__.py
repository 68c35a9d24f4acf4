"""Shoal and its peers on the same workloads, interleaved in one run. Never asserts a time."""
