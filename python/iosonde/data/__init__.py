"""Data files: studies, applications, suites, published values, and scripts of the virtual machine."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def shipped() -> dict[str, Path]:
    """The studies that come with iosonde, by name; `quick`, which newcomers want, first."""
    files = data_folder("studies").glob("*.toml")
    return {file.stem: file for file in sorted(files, key=lambda file: (file.stem != "quick", file.stem))}


def adapters() -> dict[str, Path]:
    """Studies that run other benchmarks as external commands, by name."""
    return {file.stem: file for file in sorted(data_folder("adapters").glob("*.toml"))}


def applications() -> dict[str, Path]:
    """The studies of applications for `iosonde qualify`, by name."""
    return {file.stem: file for file in sorted(data_folder("applications").glob("*.toml"))}


def shipped_suites() -> dict[str, Path]:
    """The suites that come with iosonde, by name."""
    return {file.stem: file for file in sorted(data_folder("suites").glob("*.toml"))}


def reference_file(name: str) -> Path:
    """A CSV file of published values, by its file name."""
    return data_folder("reference") / name


def data_folder(name: str) -> Path:
    """A folder of data: `studies`, `adapters`, `applications`, `suites`, `reference`, `lab`, `shim`."""
    return _HERE / name
