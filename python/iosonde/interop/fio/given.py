"""The options of one section with their values, in fio's units; errors name their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from iosonde.errors import StudyError
from iosonde.interop.fio import options, units
from iosonde.interop.fio.jobfile import Section, Setting, unset_variables
from iosonde.interop.fio.notes import Notes

T = TypeVar("T")


class Given:
    """The options of a section, by the names of the options table."""

    def __init__(self, section: Section, notes: Notes) -> None:
        self.section = section
        self.notes = notes
        self._settings: dict[str, Setting] = {}
        for setting in section.settings:
            name = _known(setting).name
            # Taken out first, so that the order of the dict is that of the last mention.
            self._settings.pop(name, None)
            self._settings[name] = setting
        self.kb_base = 1024
        self.kb_base = self.number("kb_base", 1024)

    def __contains__(self, name: str) -> bool:
        return name in self._settings

    def all(self) -> list[tuple[options.Option, Setting]]:
        """Every option that counts."""
        return [(_known(setting), setting) for setting in self._settings.values()]

    def setting(self, name: str) -> Setting:
        return self._settings[name]

    def note(self, name: str, *, why: str, instead: str) -> None:
        """Note that an option is not carried over unchanged."""
        self.notes.add(self._settings[name], why=why, instead=instead)

    def note_section(self, *, why: str, instead: str) -> None:
        """The same of the section as a whole."""
        self.notes.add_section(self.section.name, self.section.file, self.section.line, why=why, instead=instead)

    def last_of(self, *names: str) -> str | None:
        """The last one, of several that overrule each other."""
        return next((name for name in reversed(self._settings) if name in names), None)

    def raw(self, name: str) -> str:
        """The value as text, where nothing depends on what it holds."""
        return self._settings[name].value or "" if name in self else ""

    def text(self, name: str, default: str = "") -> str:
        return self.read(name, str) if name in self else default

    def flag(self, name: str, default: bool = False) -> bool:
        """A switch, or 0 and 1."""
        if name not in self or self._settings[name].value is None:
            return name in self or default
        return self.read(name, lambda text: int(text, 0)) != 0

    def number(self, name: str, default: int) -> int:
        """A count; it may have the suffixes of a size."""
        return self.size(name) if name in self else default

    def size(self, name: str) -> int:
        kb_base = 1024 if name == "kb_base" else self.kb_base
        return self.read(name, lambda text: units.size(text, kb_base=kb_base))

    def time_ns(self, name: str, *, unit: str = "s", default: int = 0) -> int:
        return self.read(name, lambda text: units.time_ns(text, unit=unit)) if name in self else default

    def triple(self, name: str) -> tuple[str, str, str]:
        """For reads, writes and trims."""
        return self.read(name, units.triple) if name in self else ("", "", "")

    def read(self, name: str, parse: Callable[[str], T]) -> T:
        """The value as `parse` understands it."""
        setting = self._settings[name]
        for variable in unset_variables(setting):
            self.fail(
                name,
                f"`{name}` requires the environment variable `{variable}`, which is not set",
                hint=f"set it for the import: `{variable}=... iosonde import fio ...`",
            )
        if not setting.value:
            self.fail(name, f"`{name}` requires a value", hint=f"write `{name}=...`")
        try:
            value = parse(setting.value)
        except ValueError as error:
            self.fail(name, f"`{setting}` cannot be read: {error}", hint=_HOW_NUMBERS_ARE_WRITTEN)
        reversed_prefix = units.REVERSED_PREFIX.search(setting.value)
        if reversed_prefix and parse is not str and self.kb_base == 1024:
            suffix = reversed_prefix[1]
            self.note(
                name,
                why=f"`{suffix}` is a power of 1000 with `kb_base=1024`, and `{suffix[0]}` a power of 1024",
                instead="sizes are as in fio",
            )
        return value

    def fail(self, name: str, what: str, *, hint: str) -> NoReturn:
        raise StudyError(what, where=self._settings[name].where(), hint=hint)


_HOW_NUMBERS_ARE_WRITTEN = "fio's units are explained in docs/fio.md"


def _known(setting: Setting) -> options.Option:
    option = options.find(setting.option)
    if option is None:
        near = options.nearest(setting.option)
        guess = (
            f"did you mean `{near}`?"
            if near
            else "docs/fio.md lists the known options; remove the line if the load does not need it"
        )
        raise StudyError(
            f"unknown option `{setting.option}` (fio {options.VERSION})",
            where=setting.where(),
            hint=guess,
        )
    return option
