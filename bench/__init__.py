"""Benchmarks: contestants in one run, as ratios, with the noise shown."""
