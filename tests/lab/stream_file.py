"""Stream a file with our engine, and print what was measured: `stream_file.py ENGINE FILE READ_FRACTION`."""

import json
import sys
from dataclasses import asdict

from lab_load import SEQUENTIAL, measure

SPAN_BYTES = 64 << 20

engine, file, read_fraction = sys.argv[1:]
measured = measure(
    engine,
    file,
    access=SEQUENTIAL,
    block_bytes=512 * 1024,
    queue_depth=8,
    jobs=2,
    read_fraction=float(read_fraction),
    span_bytes=SPAN_BYTES,
    seconds=4,
    target={"kind": "file", "path": file, "size_bytes": SPAN_BYTES},
    layout="missing",
)
print(json.dumps(asdict(measured)))
