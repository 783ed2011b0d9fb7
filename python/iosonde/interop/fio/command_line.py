"""fio's command line as sections of a job file (`fio --showcmd` is the reverse).

`--name=JOB` starts a job, options before the first one are global, `--option VALUE` is `--option=VALUE`, and the
beginning of a name is enough where no other name has it (getopt_long_only(3)). Job files follow the jobs of the command
line; those after the first wait for all before them. Options of fio itself, which are not of a job, change only its
output and are left out, except `--section`, which selects.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from iosonde.errors import StudyError
from iosonde.interop.fio import jobfile, options

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
    *("trigger-remote", "daemonize", "section"),
)
_OF_FIO = (
    *("minimal", "append-terse", "bandwidth-log", "readonly", "warnings-fatal", "parse-only", "showcmd"),
    *("version", "help", "server"),
    *_OF_FIO_WITH_VALUE,
)

_PROGRAMS = ("fio", "fio.exe")
_DASHES = "-\u2013\u2014"
"""Web pages make one long dash of two short ones."""
_PROMPT = re.compile(
    r"""^[ \t]*(?:\[[^]\n]*\]|\([^)\n]*\))?[ \t]*(?:[^\s'"=-][^\s'"=]*?|[~/]\S*[ \t]+)?[#$%>\u276f][ \t]+""",
    re.MULTILINE,
)
"""Prompt of a shell at the start of a line: `$`, `[user@host ~]#`, `user@host:/mnt$`, `~ #`."""
_TOKEN = re.compile(
    rf"""(?P<space>[^\S\n]+|\#[^\n]*|\n\s*(?=[{_DASHES}]))|(?P<redirection>\d*[<>])|(?P<end>[\n|&;])
    |(?P<word>(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s\\"'<>|&;])+)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of fio among those that a user pasted."""

    arguments: Sequence[str]
    """Without the program and what precedes it, such as `sudo`."""
    environment: Mapping[str, str]
    """Variables that are assigned before the program."""


def is_command_line(words: Sequence[str]) -> bool:
    """Return True for the words of a command line, False for the name of a job file."""
    if len(words) > 1:
        return True
    is_command = words[0].lstrip().startswith(tuple(_DASHES)) or re.search(r"(^|[\s/])fio(\.exe)?\s", words[0])
    return bool(is_command) and not Path(words[0]).exists()


def split(words: Sequence[str]) -> Command:
    """Return the command that was pasted as one word or as several."""
    commands = list(_commands(words[0])) if len(words) == 1 else [list(words)]
    found = [(number, place) for number, each in enumerate(commands) if (place := _program(each)) is not None]
    loads = [(number, place) for number, place in found if any(map(_is_of_load, commands[number][place + 1 :]))]
    if len(loads) > 1:
        raise StudyError(
            f"the text has {len(loads)} commands of fio, and a study has the load of one",
            hint="import them one by one",
        )
    if not found:
        return Command(arguments=commands[0] if commands else [], environment={})
    number, place = (loads or found)[0]
    before = [word for command in commands[:number] for word in command] + commands[number][:place]
    assigned = filter(None, map(_ASSIGNMENT.fullmatch, before))
    return Command(arguments=commands[number][place + 1 :], environment={each[1]: each[2] for each in assigned})


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a shell, without redirections."""
    text = re.sub(r"\\\r?\n", " ", _PROMPT.sub("", text))
    words: list[str] = []
    place, is_redirected = 0, False
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise StudyError(
                f"the command line cannot be split: no closing quotation for `{text[place : place + 20]}`",
                hint="close its quotation marks",
            )
        place = token.end()
        is_redirected = token.lastgroup != "end" and (is_redirected or token.lastgroup == "redirection")
        if token.lastgroup == "end" and words:
            yield words
            words = []
        elif token.lastgroup == "word" and not is_redirected:
            words += shlex.split(token[0])
    if words:
        yield words


def _program(command: Sequence[str]) -> int | None:
    """The position of fio; None for a command of something else, and for arguments alone."""
    if command[0].startswith(tuple(_DASHES)):
        return None
    return next((place for place, word in enumerate(command) if PurePath(word).name in _PROGRAMS), None)


def _is_of_load(argument: str) -> bool:
    """Return False for the words of a comment that looks like a command after a prompt of root."""
    return argument.startswith(tuple(_DASHES)) or argument.endswith(".fio") or Path(argument).exists()


def read(command: Command, *, environment: Mapping[str, str]) -> list[jobfile.Section]:
    """Return the jobs of a command line, then those of the job files that it names."""
    reader = jobfile.Reader({**environment, **command.environment})
    is_named = False
    files: list[str] = []
    selected: list[str] = []
    for number, option, value in _options(command.arguments):
        if not option:
            files.append(value or "")
        elif option == "section":
            selected.append(value or "")
        elif option == "name":
            reader.start_section(value or "", FILE, number)
            is_named = True
        else:
            if not is_named:
                reader.start_section("global", FILE, number)
                is_named = True
            reader.add(option, value, FILE, number)
    for number, file in enumerate(files):
        reader.read_file(Path(file), waits=number > 0)
    return _selected(reader.sections, selected)


def _selected(sections: list[jobfile.Section], names: Sequence[str]) -> list[jobfile.Section]:
    """The sections of these names, or all."""
    found = [section for section in sections if not names or section.name in names]
    if sections and not found:
        raise StudyError(
            f"there is no section `{names[0]}`",
            where="by the option `--section`",
            hint=f"the sections are {', '.join(f'`{section.name}`' for section in sections)}",
        )
    return found


def _options(arguments: Sequence[str]) -> Iterator[tuple[int, str, str | None]]:
    """Yield the number, name and value of each option of a job and of `--section`; of a job file no name."""
    words = iter(enumerate(arguments, start=1))
    for number, word in words:
        if not word.startswith(tuple(_DASHES)):
            if not Path(word).exists():
                raise StudyError(
                    f"`{word}` is neither an option of fio nor a job file",
                    where=f"argument {number} of the command line",
                    hint="options start with `--`",
                )
            yield number, "", word
            continue
        written, equals, given = word.lstrip(_DASHES).partition("=")
        option = _whole_name(written, number)
        value: str | None = given if equals else None
        takes_value = option in _OF_FIO_WITH_VALUE if option in _OF_FIO else option not in _SWITCHES
        following = arguments[number] if number < len(arguments) else "-"
        if value is None and takes_value and not following.startswith(tuple(_DASHES)):
            _, value = next(words)
        if option not in _OF_FIO or option == "section":
            yield number, option, value


def _whole_name(written: str, number: int) -> str:
    """The option whose name begins so; unknown names as they are."""
    if written in _OF_FIO or written in options.NAMES:
        return written
    found = [*options.starting_with(written), *(name for name in _OF_FIO if name.startswith(written))]
    if len(found) > 1:
        raise StudyError(
            f"the option `{written}` is ambiguous",
            where=f"argument {number} of the command line",
            hint=f"it could be {', '.join(f'`{name}`' for name in found[:8])}",
        )
    return found[0] if found else written
