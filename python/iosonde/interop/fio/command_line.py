"""fio's command line as sections of a job file (`fio --showcmd` is the reverse).

`--name=JOB` starts a job, options before the first one are global, and `--option VALUE` is `--option=VALUE`
(getopt_long_only(3)). Options of fio itself, which are not of a job, change only its output and are left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from iosonde.errors import StudyError
from iosonde.interop.fio import jobfile

FILE = "command line"
"""In place of the name of a job file; the line is the number of an argument."""

_SWITCHES = (
    *("bs_unaligned", "blocksize_unaligned", "exitall", "exitall_on_error", "group_reporting", "new_group"),
    *("norandommap", "refill_buffers", "stonewall", "wait_for_previous", "thread", "time_based", "verify_only"),
    *("zero_buffers",),
)
"""Options of a job whose value can only follow an equals sign: "empty or boolean value" in `fio --cmdhelp=OPTION`."""

_OF_FIO_WITH_VALUE = (
    *("debug", "output", "output-format", "terse-version", "eta", "eta-newline", "eta-interval", "status-interval"),
    *("alloc-size", "max-jobs", "idle-prof", "aux-path", "trigger-file", "trigger-timeout", "trigger"),
)
_OF_FIO = (
    *("minimal", "append-terse", "bandwidth-log", "readonly", "warnings-fatal", "parse-only", "showcmd"),
    *_OF_FIO_WITH_VALUE,
)


def is_command_line(words: Sequence[str]) -> bool:
    """Return True for the words of a command line, False for the name of a job file."""
    return len(words) > 1 or words[0].lstrip().startswith(("fio ", "sudo ", "--"))


def split(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command line that was pasted as one word or as several, without the program."""
    try:
        arguments = shlex.split(words[0].replace("\\\n", " "), comments=True) if len(words) == 1 else list(words)
    except ValueError as error:
        raise StudyError(f"the command line cannot be split: {error}", hint="close its quotation marks") from None
    if "fio" in arguments[:2]:
        arguments = arguments[arguments.index("fio") + 1 :]
    return arguments


def read(arguments: Sequence[str], *, environment: Mapping[str, str]) -> list[jobfile.Section]:
    """Return the jobs of a command line."""
    reader = jobfile.Reader(environment)
    is_named = False
    for number, option, value in _options(arguments):
        line = jobfile.Line(text=f"{option}={value}", file=FILE, number=number)
        if option == "name":
            reader.start_section(value or "", line)
            is_named = True
        else:
            if not is_named:
                reader.start_section("global", line)
                is_named = True
            reader.add(option, value, line)
    return reader.sections()


def _options(arguments: Sequence[str]) -> Iterator[tuple[int, str, str | None]]:
    """Yield the number, name and value of each option of a job."""
    words = iter(enumerate(arguments, start=1))
    for number, word in words:
        if not word.startswith("-"):
            raise StudyError(
                f"`{word}` is not an option of fio",
                where=f"argument {number} of the command line",
                hint="options start with `--`; for a job file give only its name: `iosonde import fio JOBFILE`",
            )
        option, equals, given = word.lstrip("-").partition("=")
        value: str | None = given if equals else None
        takes_value = option in _OF_FIO_WITH_VALUE if option in _OF_FIO else option not in _SWITCHES
        following = arguments[number] if number < len(arguments) else "-"
        if value is None and takes_value and not following.startswith("-"):
            _, value = next(words)
        if option not in _OF_FIO:
            yield number, option, value
