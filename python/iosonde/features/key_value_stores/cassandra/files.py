"""Files of Cassandra and of Java: where they are, which settings a version has, and the configuration of a node."""

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

from iosonde.base.tools import CASSANDRA_PLACES
from iosonde.errors import ServerError, StudyError
from iosonde.study.servers import programs

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


def locate() -> tuple[Path, str]:
    """The directory of Cassandra's jar files and its version; `ServerError` if there is none.

    It is that of `CASSANDRA_HOME`, else of a known place.
    """
    named = os.environ.get(HOME)
    places = [Path(named)] if named else [Path(place).expanduser() for place in CASSANDRA_PLACES]
    for place in places:
        for directory in (place, place / "lib"):
            for jar, version, number in _own_jars(directory):
                if number < OLDEST:
                    raise ServerError(
                        f"Cassandra {version} is too old: version {OLDEST[0]}.{OLDEST[1]} or newer is required",
                        where=f"as `{jar}`",
                        hint=f"install a newer one, and name its directory with `{HOME}`",
                        code="wrong_version",
                    )
                return directory, version
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


def check(jars: Path, settings: Mapping[str, object]) -> None:
    """`StudyError` for settings that this version does not have, and for values that its fields cannot have."""
    jar = next(_own_jars(jars))[0]
    known = fields(jar)
    for name, value in settings.items():
        what, hint = f"Cassandra has no setting `{name}`", "settings have the names of `cassandra.yaml`"
        if name in known:
            what = f"the setting `{name}` of Cassandra cannot be `{str(value)[:60]}`"
            hint = _mismatch(jar, known[name], value)
        elif near := get_close_matches(name, known, n=1):
            hint = f"the nearest name is `{near[0]}`"
        if hint:
            raise StudyError(what, where="by the parameter `cassandra`", hint=hint)


@functools.cache
def fields(jar: Path) -> Mapping[str, str]:
    """The settings with the types of their fields: public fields of `Config`, into which `cassandra.yaml` is read."""
    return {name: kind for name, kind, flags in _fields_of(jar, _CONFIG) if not flags & _STATIC}


_TYPES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("Z", "Ljava/lang/Boolean;"), (r"true|false", "it is true or false")),
    **dict.fromkeys(("I", "Ljava/lang/Integer;"), (r"-?[0-9]{1,9}", "it is a whole number of at most nine digits")),
    **dict.fromkeys(("J", "Ljava/lang/Long;"), (r"-?[0-9]{1,18}", "it is a whole number of at most 18 digits")),
    **dict.fromkeys(
        ("D", "F", "Ljava/lang/Double;", "Ljava/lang/Float;"), (r"-?[0-9]{1,12}(\.[0-9]{1,12})?", "it is a number")
    ),
    "Ljava/lang/String;": (r"[A-Za-z0-9_.:+-]{0,100}", "it is a word of letters, digits and `_.:+-`"),
}
"""Types of fields: the pattern of their values as text, and its description."""

_OF_SPECS: Mapping[str, tuple[str, str]] = {
    "DurationSpec": (r"[0-9]{1,18}(d|h|m|s|ms|us|ns)", "it is a duration such as `100ms`"),
    "DataStorageSpec": (r"[0-9]{1,18}(B|KiB|MiB|GiB)", "it is a size such as `64MiB`"),
    "DataRateSpec": (r"[0-9]{1,18}(B|KiB|MiB)/s", "it is a rate such as `64MiB/s`"),
}
"""The same for Cassandra's own types of values with units."""


def _mismatch(jar: Path, kind: str, value: object) -> str:
    """Return the values that a field accepts if this is none of them; else empty."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    own = kind.removeprefix("Lorg/apache/cassandra/config/").removesuffix(";")
    of_spec = _OF_SPECS.get(own.partition("$")[0])
    if kind in _TYPES or of_spec:
        pattern, description = of_spec or _TYPES[kind]
        return "" if re.fullmatch(pattern, text) else description
    allowed = _constants(jar, kind)
    if not allowed:
        return "it is not a single value, and a study sets only those"
    return "" if text in allowed else f"it is one of {', '.join(f'`{each}`' for each in allowed)}"


def _constants(jar: Path, kind: str) -> list[str]:
    """Names of the constants of an enumeration; none for another class."""
    if not kind.startswith("Lorg/apache/cassandra/"):
        return []
    found = _fields_of(jar, f"{kind[1:-1]}.class", is_optional=True)
    return [name for name, _, flags in found if flags & _ENUM]


def _fields_of(jar: Path, name: str, *, is_optional: bool = False) -> list[tuple[str, str, int]]:
    try:
        with zipfile.ZipFile(jar) as archive:
            if is_optional and name not in archive.namelist():
                return []
            return list(_fields(archive.read(name)))
    except (OSError, KeyError, zipfile.BadZipFile, struct.error, IndexError) as error:
        raise ServerError(
            f"`{jar}` cannot be read: {error}", hint="install Cassandra again", code="missing_server"
        ) from None


_PUBLIC, _STATIC, _ENUM = 0x0001, 0x0008, 0x4000
"""Access flags of fields (JVMS 4.5)."""

_CONSTANT_BYTES = {
    **dict.fromkeys((7, 8, 16, 19, 20), 2),
    15: 3,
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4),
    **dict.fromkeys((5, 6), 8),
}
"""Sizes of the entries of a class file's constant pool by their tags, without those of texts (JVMS 4.4)."""


def _fields(data: bytes) -> Iterator[tuple[str, str, int]]:
    """Names, types and flags of the public fields of a class file (JVMS 4.1 and 4.5)."""
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
    (number,) = struct.unpack_from(">H", data, place)
    place += 2
    for _ in range(number):
        flags, name, kind, attributes = struct.unpack_from(">HHHH", data, place)
        place += 8
        for _ in range(attributes):
            (size,) = struct.unpack_from(">I", data, place + 2)
            place += 6 + size
        if flags & _PUBLIC:
            yield texts[name], texts[kind], flags


def yaml(settings: Mapping[str, object]) -> str:
    """`cassandra.yaml`: each value as JSON, which YAML contains."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


JAVA_HOME = "JAVA_HOME"

JAVA_PLACES = "/usr/lib/jvm/*/bin/java", "/opt/java/*/bin/java"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One virtual machine."""

    path: str
    version: int
    """`17`."""
    build: str
    """The first line that it prints about itself."""


def find_java(versions: Sequence[int]) -> Machine:
    """The first machine of the preferred version; that of `JAVA_HOME`, if it is set, or none."""
    named = os.environ.get(JAVA_HOME)
    paths = [Path(named, "bin", "java")] if named else []
    if not named:
        paths += map(Path, filter(None, [programs.find("java")]))
        paths += (path for place in JAVA_PLACES for path in sorted(Path("/").glob(place.lstrip("/"))))
    machines = [machine for path in paths if path.is_file() and (machine := _machine(str(path.resolve())))]
    for version in versions:
        for machine in machines:
            if machine.version == version:
                return machine
    wanted = " or ".join(str(version) for version in sorted(versions))
    if machines:
        raise ServerError(
            f"Java {machines[0].version} cannot run this server: it needs Java {wanted}",
            where=f"found `{machines[0].path}`" + (f", which `{JAVA_HOME}` names" if named else ""),
            hint=f"install the package `openjdk-{max(versions)}-jre-headless`, or name another with `{JAVA_HOME}`",
            code="wrong_version",
        )
    raise ServerError(
        "Java is not installed: no program `java` was found",
        where=f"in `{named}`, which `{JAVA_HOME}` names" if named else "on PATH and in `/usr/lib/jvm`",
        hint=f"install the package `openjdk-{max(versions)}-jre-headless`",
        code="missing_server",
    )


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
