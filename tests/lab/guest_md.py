"""Linux md arrays on the guest's drives, made with mdadm and taken apart again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHUNK_KIB = 64
LAB = Path("/dev/lab")
NAME = Path("/dev/md/lab")


def drives(count: int) -> list[Path]:
    return [LAB / str(number) for number in range(count)]


@contextmanager
def array(level: str, members: Sequence[Path]) -> Iterator[Path]:
    """An array that is taken to be in sync already; its path."""
    chunk = [] if level == "raid1" else [f"--chunk={CHUNK_KIB}"]
    clean = [] if level == "raid0" else ["--assume-clean", "--bitmap=none"]
    few = ["--force"] if len(members) == 1 else []
    count = f"--raid-devices={len(members)}"
    run("mdadm", "--create", NAME, "--run", f"--level={level}", count, *chunk, *clean, *few, *members)
    try:
        if level in ("raid5", "raid6"):
            # The default of 256 stripes keeps a fast array waiting for its own cache.
            (settings(NAME) / "stripe_cache_size").write_text("4096")
        yield NAME
    finally:
        run("mdadm", "--stop", NAME)
        run("mdadm", "--zero-superblock", *members)


def settings(path: Path) -> Path:
    """Directory in `/sys` of an array."""
    return Path("/sys/block", path.resolve().name, "md")


def send(**what: Any) -> None:
    """A result, for the test outside."""
    print(json.dumps(what), flush=True)


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed: {done.stderr.strip()}")
    return done.stdout
