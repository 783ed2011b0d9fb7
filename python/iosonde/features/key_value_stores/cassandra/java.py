"""Java virtual machines of this machine, and their versions."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import ServerError
from iosonde.servers import programs

HOME = "JAVA_HOME"

PLACES = "/usr/lib/jvm/*/bin/java", "/opt/java/*/bin/java"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One virtual machine."""

    path: str
    version: int
    """`17`."""
    build: str
    """The first line that it prints about itself."""


def find(versions: Sequence[int]) -> Machine:
    """The first machine of the preferred version; that of `JAVA_HOME`, if it is set, or none."""
    named = os.environ.get(HOME)
    paths = [Path(named, "bin", "java")] if named else list(_installed())
    machines = [machine for path in paths if path.is_file() and (machine := _machine(str(path.resolve())))]
    for version in versions:
        for machine in machines:
            if machine.version == version:
                return machine
    wanted = " or ".join(str(version) for version in sorted(versions))
    if machines:
        raise ServerError(
            f"Java {machines[0].version} cannot run this server: it needs Java {wanted}",
            where=f"found `{machines[0].path}`" + (f", which `{HOME}` names" if named else ""),
            hint=f"install the package `openjdk-{max(versions)}-jre-headless`, or name another with `{HOME}`",
            code="wrong_version",
        )
    raise ServerError(
        "Java is not installed: no program `java` was found",
        where=f"in `{named}`, which `{HOME}` names" if named else "on PATH and in `/usr/lib/jvm`",
        hint=f"install the package `openjdk-{max(versions)}-jre-headless`",
        code="missing_server",
    )


def _installed() -> Iterator[Path]:
    found = programs.find("java")
    if found:
        yield Path(found)
    for place in PLACES:
        yield from sorted(Path("/").glob(place.lstrip("/")))


@functools.cache
def _machine(path: str) -> Machine | None:
    """Return the reported version: `openjdk version "17.0.15" 2025-04-15`, before Java 9 `"1.8.0_452"`."""
    done = programs.call([path, "-version"])
    text = done.stderr + done.stdout
    found = re.search(r'version "(?:1\.)?([0-9]+)', text)
    if not found:
        return None
    return Machine(
        path=path, version=int(found[1]), build=next(line for line in text.splitlines() if "version" in line)
    )
