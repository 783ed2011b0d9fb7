from __future__ import annotations

from pathlib import Path

from command_line import Iosonde
from inline_snapshot import snapshot

STUDIES = snapshot("""\
One device
  quick                           2 min  Two-minute overview of a disk
  davidovic2019-grid             44 min  Bandwidth over block size and queue depth
  han2021-device                  9 min  Buffered and direct I/O with 64 threads and a file each
  jo2024-driver                   1.7 h  I/O backends: IOPS and CPU time of each
  jo2024-mixed                   13 min  IOPS and five-nines latency under a 70/30 mix
  kernel-tax                      7 min  Kernel I/O path: latency by stage [root]
  master2010-iops                10 min  IOPS over threads
  master2010-surface             36 min  Bandwidth surface over block size and threads
  network-path                    8 min  Network storage: latency by client, network and server

Latency under load
  act                           ≤72 min  Highest passing Aerospike ACT load
  failover                       42 min  Restart of a storage server under load [root]
  latency-curve                  16 min  Response latency over offered load
  limits                         ≤4.0 h  Rate limits of a volume
  nfs-options                     7 min  Mount options of NFS [root]
  nvme-tcp                       17 min  NVMe over TCP beside the local device [root]
  shared-limits                  ≤2.0 h  Rate limits of several volumes together
  shared-storage                 17 min  Throughput of shared storage over hosts
  write-stress                    9 min  Read latency under write saturation

Sustained performance
  idle-recovery                  ≤2.6 h  Write performance recovery after idle time
  master2010-degradation         80 min  Performance after an hour of random writes
  mixed-endurance                40 min  Five-nines latency under a sustained 70/30 mix
  snia-cross-stimulus-recovery    1.8 h  Recovery after switching between sequential and random writes
  snia-host-idle-recovery        ≤1.8 h  Random writes with idle periods
  snia-iops                      ≤4.0 h  Random IOPS in steady state, by block size and mix
  snia-latency                  ≤43 min  Latency in steady state with one I/O in flight
  snia-throughput               ≤17 min  Sequential throughput in steady state
  snia-write-saturation          65 min  Write saturation after a purge

Arrays and file systems
  array-degraded                 77 min  Degraded and rebuilding arrays [root, 4 devices]
  davidovic2019-raid0            71 min  RAID 0 scaling from one to three drives [root, 3 devices]
  filesystems                    40 min  File system overhead [root]
  han2021-raid                   79 min  RAID levels compared with their expected throughput [root, 8 devices]
  jo2024-bcache                  14 min  Fast device as a block cache [root]
  systems                        35 min  Comparison of two systems

Databases
  cache-tiers                    40 min  Memory of a cache replaced by a device [root, memcached]
  cassandra                      ≤2.5 h  YCSB on Cassandra [Cassandra]
  commit-latency                 48 min  Durable commits over clients and WAL sync methods [PostgreSQL]
  durability                     19 min  Acknowledged commits after a server crash [MariaDB, PostgreSQL]
  han2021-dbbench                46 min  RocksDB: fills and reads with 64 write buffers [RocksDB]
  han2021-tpcc                   72 min  TPC-C on MariaDB InnoDB over RAID levels [root, 8 devices, MariaDB]
  jo2024-cache                  ≤74 min  Caches on a fast drive (extstore, bcache, RocksDB) [root, RocksDB, memcached]
  jo2024-postgresql              36 min  TPC-C on PostgreSQL with data and log on one device [memory limit, PostgreSQL]
  jo2024-postgresql-log          72 min  PostgreSQL write-ahead log on a separate device [memory limit, PostgreSQL]
  jo2024-read-cache              63 min  RocksDB's persistent read cache [RocksDB]
  lmdb-sync                      48 min  LMDB: write durability, load order and batch size
  log-device                    ≤54 min  RocksDB write-ahead log on a separate device [RocksDB]
  memory-extension                1.5 h  Memory of LMDB and RocksDB extended by a device [root, RocksDB]
  mongodb                        60 min  YCSB on a MongoDB server [MongoDB]
  oltp                            2.3 h  TPC-C throughput of PostgreSQL and MariaDB [memory limit, MariaDB, PostgreSQL]
  symas2018                      ≤2.9 h  LMDB and RocksDB: loads, and reads during writes [root, RocksDB]
  trace-replay                   60 min  Replay of a trace of a key-value store [memcached]
  wiredtiger                     60 min  YCSB on WiredTiger, MongoDB's storage engine [WiredTiger]
  ycsb                           ≤3.0 h  YCSB workloads A to F on four stores [memory limit, RocksDB]

Memory and swap
  jo2024-swap                    30 min  Swap on a fast drive (PMbench, memcached) [root, memcached]
  paging                         59 min  Page faults from swap, and mapped files [root]

Graphs
  jo2024-pagerank                48 min  PageRank with the graph on the device (FlashX)

Object stores
  jo2024-ceph                    52 min  Objects in Ceph (rados bench) [Ceph]
  s3                             25 min  Objects on an S3 server [S3]

External commands
  command-db-bench-read-cache    11 min  RocksDB's persistent read cache with db_bench
  command-db-bench                8 min  RocksDB's db_bench as an external command
  command-fio-xnvme               4 min  fio with xNVMe on an NVMe namespace
  command-fio                     3 min  fio as an external command
  command-memcaslap               3 min  memcaslap against memcached with a flash tier
  command-pgbench                10 min  pgbench on a private PostgreSQL server [PostgreSQL]
  command-rados-bench             4 min  rados bench on a Ceph cluster
  command-spdk-perf               4 min  SPDK's spdk_nvme_perf on an NVMe controller
  command-sysbench-fileio         8 min  sysbench fileio as an external command
  command-sysbench-oltp           8 min  sysbench OLTP on a private MariaDB server [MariaDB]

Times are those of the profile `standard`. Details: iosonde show STUDY
""")


def test_list_shows_every_study_with_the_size_of_its_profiles(iosonde: Iosonde) -> None:
    shown = iosonde("list")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == STUDIES


def test_times_with_ramps_until_steady_are_upper_bounds(iosonde: Iosonde, tmp_path: Path) -> None:
    assert "36 runs, at most about 54 min 7 s" in iosonde("show", "log-device").stdout
    planned = iosonde("plan", "ycsb", "--target", tmp_path, "--profile", "quick")
    assert "\ntime      at most about 1 min" in planned.stdout
    fixed = iosonde("plan", "ycsb", "--target", tmp_path, "--profile", "quick", "--set", "ramp_until=time")
    assert "\ntime      about 1 min" in fixed.stdout


def test_list_shows_every_simulated_drive(iosonde: Iosonde) -> None:
    shown = iosonde("list", "--drives")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == snapshot("""\
sim:gp2-100g  Amazon EBS gp2, 100 GiB (cloud volume)
sim:iodrive   Fusion-io ioDrive Duo SLC, one 160 GB module (PCIe SLC flash)
sim:p4800x    Intel Optane SSD DC P4800X 375 GB (3D XPoint)
sim:p900      Intel Optane SSD 900P 480 GB (3D XPoint)
sim:pm1725a   Samsung PM1725a 6.4 TB (PCIe x4) (TLC enterprise NVMe)
sim:pm963     Samsung PM963 3.84 TB (TLC data-centre NVMe)
sim:sp900     ADATA SP900 128 GB (SATA MLC)
sim:sz985     Samsung SZ985 800 GB (Z-NAND)
sim:x25m      Intel X25-M 160 GB (SATA MLC)
""")
