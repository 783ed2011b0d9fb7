"""Stream a file with our engine, and print what was measured: `stream_file.py ENGINE FILE READ_FRACTION BLOCKS`."""

import json
import sys
from dataclasses import asdict

from lab_load import SEQUENTIAL, STREAM_BYTES, measure

SPAN_BYTES = 64 << 20

engine, file, read_fraction, blocks = sys.argv[1:]
measured = measure(
    engine,
    file,
    access=SEQUENTIAL,
    block_bytes=STREAM_BYTES,
    queue_depth=8,
    jobs=2,
    read_fraction=float(read_fraction),
    span_bytes=SPAN_BYTES,
    ramp_s=0,
    seconds=120,
    operations=int(blocks),
    target={"kind": "file", "path": file, "size_bytes": SPAN_BYTES},
    layout="missing",
)
print(json.dumps(asdict(measured)))
