"""Storage behind a network or a daemon: transport, evidence from the wire, division of latency (docs/network.md).

`transport.py` describes the transport below a target and the route to its server. `run.py` reads
counters of the mount, its connections and the interface over a run, while `probe.py` measures the network itself.
`setup.py` and `setups` have the mounts and exports that iosonde makes; `outage.py` stops their servers during a run.
"""
