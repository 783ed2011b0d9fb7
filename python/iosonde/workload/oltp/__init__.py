"""What the workloads on database servers share: parameters of server and load, checks, place, cost.

`tpcc` and `commit` are workloads; this package is not one.
"""
