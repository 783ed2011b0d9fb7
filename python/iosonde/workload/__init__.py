"""Workloads: one file each, with its parameters, the engine spec they become, and what that costs.

A workload module offers `read_value` and `build` (parameters as written -> checked), `settle` (what the target
decides), `resolve` (the engine's spec), `files` (what it keeps on disk) and `cost`.
"""
