from __future__ import annotations

from command_line import Iosonde
from inline_snapshot import snapshot


def test_list_shows_every_study_with_the_size_of_its_profiles(iosonde: Iosonde) -> None:
    shown = iosonde("list")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == snapshot("""\
quick  What this disk delivers, in two minutes
  quick        13 cases    43 runs   30.1 s
  standard     13 cases    43 runs   1 min 35 s
act  Aerospike's load: how many times it passes
  quick         1 cases    12 runs   at most 1 min 20 s
  standard      1 cases    14 runs   at most 1 h 12 min
  paper         1 cases    15 runs   at most 360 h 15 min
array-degraded  Arrays that lost a member
  quick        48 cases   144 runs   3 min 22 s
  standard     48 cases   144 runs   1 h 17 min
davidovic2019-grid  Bandwidth over block size and queue depth
  quick        60 cases   187 runs   2 min 11 s
  standard    340 cases  1051 runs   43 min 48 s
  paper       340 cases  1051 runs   3 h 34 min
davidovic2019-raid0  One, two and three drives in RAID 0
  quick       150 cases   450 runs   5 min 15 s
  standard   1020 cases  3060 runs   1 h 11 min
  paper      1020 cases  3060 runs   10 h 22 min
filesystems  What a file system costs
  quick        25 cases    75 runs   1 min 45 s
  standard     25 cases    75 runs   40 min 15 s
han2021-dbbench  RocksDB: fills and reads with 64 write buffers
  quick         4 cases     4 runs   46.8 s
  standard      4 cases    12 runs   46 min 2 s
  paper         4 cases    20 runs   11 h 7 min
han2021-device  One device under 64 threads with a file each
  quick         8 cases    28 runs   39.2 s
  standard      8 cases    46 runs   8 min 35 s
  paper         8 cases    46 runs   6 h 8 min
han2021-raid  RAID levels against their promise
  quick       112 cases   336 runs   7 min 50 s
  standard    152 cases   760 runs   1 h 19 min
  paper       152 cases   760 runs   116 h 6 min
idle-recovery  What a pause gives back
  quick         1 cases     5 runs   at most 1 min 32 s
  standard      1 cases     8 runs   at most 2 h 36 min
jo2024-mixed  IOPS and five-nines latency under a 70/30 mix
  quick         8 cases    28 runs   39.2 s
  standard      8 cases    28 runs   15 min 30 s
  paper         8 cases    28 runs   2 h 34 min
latency-curve  Response latency over offered load
  quick        14 cases    42 runs   58.8 s
  standard     26 cases    78 runs   15 min 52 s
log-device  RocksDB's write-ahead log on a device of its own
  quick        12 cases    12 runs   20.4 s
  standard     12 cases    36 runs   21 min 7 s
  paper        12 cases    36 runs   2 h 6 min
master2010-degradation  What is left after an hour of random writes
  quick         8 cases    24 runs   2 min 2 s
  standard      8 cases    24 runs   1 h 20 min
  paper         8 cases    24 runs   8 h
master2010-iops  IOPS over threads
  quick        16 cases    52 runs   46.8 s
  standard     16 cases    86 runs   10 min 19 s
  paper        16 cases    86 runs   46 min 9 s
master2010-surface  Bandwidth surface over block size and threads
  quick        75 cases   232 runs   2 min 42 s
  standard    280 cases   862 runs   35 min 55 s
  paper       280 cases  1436 runs   12 h 51 min
mixed-endurance  Five nines of a mixed load that does not end
  quick         2 cases     6 runs   1 min
  standard      4 cases    12 runs   40 min 1 s
  paper         4 cases    12 runs   4 h
snia-cross-stimulus-recovery  Sequential, then random, then sequential writes again
  quick         1 cases     5 runs   42.6 s
  standard      1 cases     5 runs   1 h 50 min
  paper         1 cases     5 runs   22 h
snia-host-idle-recovery  Random writes with pauses between
  quick         1 cases    36 runs   at most 4 min 7 s
  standard      1 cases    42 runs   at most 1 h 47 min
  paper         1 cases    42 runs   at most 16 h
snia-iops  Random IOPS in steady state, by block size and mix
  quick         1 cases    92 runs   at most 3 min 18 s
  standard      1 cases  1402 runs   at most 3 h 58 min
  paper         1 cases  1402 runs   at most 23 h 25 min
snia-latency  Latency in steady state with one I/O in flight
  quick         1 cases    63 runs   at most 2 min 42 s
  standard      1 cases   228 runs   at most 43 min 15 s
  paper         1 cases   228 runs   at most 4 h 6 min
snia-throughput  Sequential throughput in steady state
  quick         2 cases    44 runs   at most 1 min 28 s
  standard      2 cases   104 runs   at most 17 min
  paper         2 cases   104 runs   at most 1 h 40 min
snia-write-saturation  Write saturation of a device that was purged
  quick         1 cases     4 runs   45.4 s
  standard      1 cases     4 runs   1 h 5 min
  paper         1 cases     4 runs   24 h 20 min
symas2018  LMDB and RocksDB: loading, and reading while writing
  quick        30 cases    30 runs   1 min 18 s
  standard     48 cases   144 runs   1 h 1 min
  paper        48 cases   144 runs   13 h 15 min
systems  Two systems side by side
  quick        36 cases   112 runs   1 min 30 s
  standard     36 cases   186 runs   34 min 43 s
  paper        36 cases   186 runs   3 h 22 min
write-stress  Reads while writes saturate the target
  quick         2 cases     6 runs   38.4 s
  standard      2 cases     6 runs   9 min 13 s
  paper         2 cases     6 runs   4 h 31 min
ycsb  YCSB's six workloads on four stores
  quick        24 cases    24 runs   28.8 s
  standard     24 cases    72 runs   42 min 14 s
""")


def test_list_shows_every_simulated_drive(iosonde: Iosonde) -> None:
    shown = iosonde("list", "--drives")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == snapshot("""\
sim:iodrive  Fusion-io ioDrive Duo SLC, one 160 GB module (PCIe SLC flash, simulated)
sim:p4800x   Intel Optane SSD DC P4800X 375 GB (3D XPoint, simulated)
sim:p900     Intel Optane SSD 900P 480 GB (3D XPoint, simulated)
sim:pm1725a  Samsung PM1725a 6.4 TB (PCIe x4) (TLC enterprise NVMe, simulated)
sim:pm963    Samsung PM963 3.84 TB (TLC data-centre NVMe, simulated)
sim:sp900    ADATA SP900 128 GB (SATA MLC, simulated)
sim:sz985    Samsung SZ985 800 GB (Z-NAND, simulated)
sim:x25m     Intel X25-M 160 GB (SATA MLC, simulated)
""")
