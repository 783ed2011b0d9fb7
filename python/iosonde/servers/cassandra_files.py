"""Files of Cassandra: where its jar files are, which settings its version has, and the configuration of a node."""

from __future__ import annotations

import functools
import json
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from iosonde.errors import ServerError, StudyError
from iosonde.tools import CASSANDRA_PLACES

HOME = "CASSANDRA_HOME"
"""Environment variable with the directory of a distribution, or of its jar files alone."""

OLDEST = (4, 1)
"""The first version whose settings have names with units in their values."""

JAVA_VERSIONS = (17, 11)
"""Versions of Java that Cassandra 4.1 and 5.0 start on, the preferred one first."""

DEFAULTS: Mapping[str, object] = {
    "num_tokens": 1,
    "endpoint_snitch": "SimpleSnitch",
    "auto_snapshot": False,
    "disk_failure_policy": "die",
    "commit_failure_policy": "die",
    "read_request_timeout": "60s",
    "write_request_timeout": "60s",
    "request_timeout": "60s",
    "truncate_request_timeout": "120s",
}
"""Settings of a node unless a study sets them: a stall becomes a long latency instead of an error of the request, and a
failed disk ends the node."""

_EXPORTED = (
    *("java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.lang.ref"),
    *("java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server"),
    *("java.rmi/sun.rmi.transport", "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql"),
    *("jdk.unsupported/sun.misc", "jdk.attach/sun.tools.attach"),
)
_OPENED = (
    *("java.base/java.lang.module", "java.base/jdk.internal.loader", "java.base/jdk.internal.ref"),
    *("java.base/jdk.internal.reflect", "java.base/jdk.internal.math", "java.base/jdk.internal.module"),
    *("java.base/jdk.internal.util.jar", "java.base/jdk.internal.misc", "java.base/sun.nio.ch", "java.base/java.io"),
    *("java.base/java.nio", "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.lang.ref"),
    *("java.base/java.util", "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic"),
    *("java.rmi/sun.rmi.transport.tcp", "jdk.management/com.sun.management.internal"),
)

JVM_OPTIONS: Sequence[str] = (
    *("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=300", "-XX:+ExitOnOutOfMemoryError", "-XX:+AlwaysPreTouch", "-ea"),
    *("-XX:-UseBiasedLocking", "-XX:+PerfDisableSharedMem", "-Xss512k", "-XX:+IgnoreUnrecognizedVMOptions"),
    *("-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true"),
    *(option for each in _EXPORTED for option in ("--add-exports", f"{each}=ALL-UNNAMED")),
    *(option for each in _OPENED for option in ("--add-opens", f"{each}=ALL-UNNAMED")),
)
"""Options of the virtual machine as in Cassandra's own `jvm17-server.options`; one that runs out of memory exits."""

LOGBACK = """<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
</configuration>
"""

_JAR = re.compile(r"(?:apache-)?cassandra(?:-all)?-([0-9]+)\.([0-9]+)\S*?\.jar")
_CONFIG = "org/apache/cassandra/config/Config.class"


@dataclass(frozen=True, kw_only=True)
class Home:
    """An installed Cassandra."""

    jars: Path
    """Directory of its jar files."""
    jar: Path
    """The one with Cassandra's own classes."""
    version: str


def locate() -> Home:
    """The Cassandra of `CASSANDRA_HOME`, else of a known place; `ServerError` if there is none."""
    named = os.environ.get(HOME)
    places = [Path(named)] if named else [Path(place).expanduser() for place in CASSANDRA_PLACES]
    for place in places:
        for directory in (place, place / "lib"):
            found = next(_own_jars(directory), None)
            if found:
                return _checked(*found)
    raise ServerError(
        "Cassandra is not installed: no `apache-cassandra-*.jar` or `cassandra-all-*.jar` was found",
        where=f"in `{places[0]}`, which `{HOME}` names" if named else "in " + ", ".join(f"`{each}`" for each in places),
        hint=f"unpack Cassandra's archive and set `{HOME}` to its directory, or run `scripts/setup VENV dev`",
        code="missing_server",
    )


def _own_jars(directory: Path) -> Iterator[tuple[Path, str, tuple[int, int]]]:
    try:
        names = sorted(directory.iterdir(), reverse=True)
    except OSError:
        return
    for path in names:
        found = _JAR.fullmatch(path.name)
        if found:
            version = path.name.removesuffix(".jar").rpartition("-")[2]
            yield path, version, (int(found[1]), int(found[2]))


def _checked(jar: Path, version: str, number: tuple[int, int]) -> Home:
    if number < OLDEST:
        raise ServerError(
            f"Cassandra {version} is too old: version {OLDEST[0]}.{OLDEST[1]} or newer is required",
            where=f"as `{jar}`",
            hint=f"install a newer one, and name its directory with `{HOME}`",
            code="wrong_version",
        )
    return Home(jars=jar.parent, jar=jar, version=version)


def check_names(jars: Path, names: tuple[str, ...]) -> None:
    """`StudyError` for settings that this version does not have."""
    jar = next(_own_jars(jars))[0]
    known = setting_names(jar)
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise StudyError(
                f"Cassandra has no setting `{name}`",
                where="by the parameter `cassandra`",
                hint=f"the nearest name is `{near[0]}`" if near else "settings have the names of `cassandra.yaml`",
            )


@functools.cache
def setting_names(jar: Path) -> frozenset[str]:
    """Names of the settings: the public fields of `Config`, which are what `cassandra.yaml` is read into."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return frozenset(_fields(archive.read(_CONFIG)))
    except (OSError, KeyError, zipfile.BadZipFile, struct.error, IndexError) as error:
        raise ServerError(
            f"`{jar}` cannot be read: {error}", hint="install Cassandra again", code="missing_server"
        ) from None


_CONSTANT_BYTES = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
"""Sizes of the entries of a class file's constant pool by their tags, without those of texts (JVMS 4.4)."""


def _fields(data: bytes) -> Iterator[str]:
    """Names of the public fields of a class file that belong to its objects (JVMS 4.1 and 4.5)."""
    texts: dict[int, str] = {}
    (count,), place, index = struct.unpack_from(">H", data, 8), 10, 1
    while index < count:
        tag = data[place]
        if tag == 1:
            (size,) = struct.unpack_from(">H", data, place + 1)
            texts[index] = data[place + 3 : place + 3 + size].decode(errors="replace")
            place += 3 + size
        else:
            place += 1 + _CONSTANT_BYTES[tag]
        index += 2 if tag in (5, 6) else 1
    (interfaces,) = struct.unpack_from(">H", data, place + 6)
    place += 8 + 2 * interfaces
    (fields,) = struct.unpack_from(">H", data, place)
    place += 2
    for _ in range(fields):
        flags, name, _, attributes = struct.unpack_from(">HHHH", data, place)
        place += 8
        for _ in range(attributes):
            (size,) = struct.unpack_from(">I", data, place + 2)
            place += 6 + size
        if flags & 0x0001 and not flags & 0x0008:
            yield texts[name]


def yaml(settings: Mapping[str, object]) -> str:
    """`cassandra.yaml`: each value as JSON, which YAML contains."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
