"""Installs iosonde into a virtual environment. Called by `scripts/setup`; needs nothing but Python's standard library.

Missing system packages are installed where this user may do that; otherwise the message names them. The list of tools
is `python/iosonde/base/tools.py`. The Rust compiler is the one on PATH if it is new enough, else the newest that the
distribution packages. The engine is compiled while Python packages and the programs of the tests are downloaded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

CHECKOUT = Path(__file__).resolve().parents[1]
POLICY = Path("/usr/sbin/policy-rc.d")
"""Decides whether packages may start services."""
LOCK_WAIT_S = 300
"""Seconds to wait for another program that installs packages."""
CONSTRAINTS = CHECKOUT / "packaging" / "constraints.txt"
CASSANDRA = CHECKOUT / "packaging" / "cassandra" / "pom.xml"
MOTO = CHECKOUT / "packaging" / "moto"
ASSEMBLE_S = 600
"""Timeout of the downloads of Cassandra's jar files, 66 MB."""
Version = tuple[int, ...]


def main(venv: Path, *, dev: bool) -> None:
    """Install the packages of the system, the engine, and the Python package."""
    tools = load_tools()
    prepend_to_path(venv / "bin")
    rust = plan_rust(minimum_rust())
    if not rust.is_sufficient or tools.missing(["build"]) or venv_packages():
        together(Job("packages for building", lambda: install_build_packages(rust, tools)))
    require_rust(rust, venv)
    require_build_tools(tools)
    jobs = [
        Job("engine", build_engine),
        Job("Python packages", lambda: install_dependencies(venv, dev=dev)),
    ]
    if dev:
        jobs.append(Job("programs for tests", lambda: install_for_tests(rust, tools)))
    together(*jobs)
    if rust.suffix is not None:
        link_compiler(rust.suffix, venv)  # Formatter and linter, which were installed with the programs for tests.
    warn_of_missing(tools, dev=dev)
    together(Job("iosonde", lambda: install_python_package(venv)))
    if (venv / "bin" / "iosonde-engine-clients").exists():
        together(Job("clients of Cassandra and MongoDB", lambda: build_clients(venv / "bin")))


def install_build_packages(rust: Rust, tools: ModuleType) -> None:
    """The compiler and `venv`."""
    install_packages(rust.missing_packages(dev=False) + system_packages(tools, ["build"]) + venv_packages())


def install_for_tests(rust: Rust, tools: ModuleType) -> None:
    """Servers and tools from the distribution, then those that it does not have."""
    install_packages(rust.missing_packages(dev=True) + system_packages(tools, ["runtime", "lab", "dev"]))
    if tools.find("cassandra") is None:
        assemble_cassandra(tools)
    install_moto(Path(tools.MOTO).expanduser())
    build_ferretdb(Path(tools.FERRETDB).expanduser())


def system_packages(tools: ModuleType, kinds: list[str]) -> list[tuple[str, ...]]:
    """Of missing tools but the compiler, whose packages have other names."""
    of_rust = ("cargo", "rustc", "cargo-fmt", "cargo-clippy")
    return [tool.packages for tool in tools.missing(kinds) if tool.name not in of_rust]


def load_tools() -> ModuleType:
    """`iosonde.base.tools`, without importing the package, whose dependencies are not installed yet."""
    spec = importlib.util.spec_from_file_location("iosonde_tools", CHECKOUT / "python/iosonde/base/tools.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


# --- Jobs ---------------------------------------------------------------------------------------------------------


class SetupError(Exception):
    """A reason to stop, with a hint."""


@dataclass
class Job:
    """A part of the set-up that may run beside others. Its output is printed only if it fails."""

    name: str
    action: Callable[[], None]
    output: list[str] = field(default_factory=list)
    now: str = ""
    """Progress: the last line of its output."""
    error: SetupError | None = None

    def run(self) -> None:
        """In a thread of its own, to which messages and programs belong."""
        _here.job = self
        try:
            self.action()
        except SetupError as error:
            self.error = error
        except Exception as error:
            self.output += traceback.format_exc().splitlines()
            self.error = SetupError(f"{self.name}: {error}")


_here = threading.local()
_running: set[subprocess.Popen[bytes]] = set()
_stopping = threading.Event()
SHOWN_EVERY_S = 20.0
"""Time between two lines of progress where the output is not a terminal."""


def together(*jobs: Job) -> None:
    """Run jobs at the same time and show their progress; if one fails, end the others and stop."""
    started = time.monotonic()
    threads = {job.name: threading.Thread(target=job.run, daemon=True) for job in jobs}
    for thread in threads.values():
        thread.start()
    failed: Job | None = None
    shown = started
    terminal = sys.stderr.isatty()
    while working := [job for job in jobs if threads[job.name].is_alive()]:
        failed = failed or next((job for job in jobs if job.error), None)
        if failed and not _stopping.is_set():
            _stopping.set()
            for process in list(_running):
                process.terminate()
        time.sleep(0.1)
        if time.monotonic() - shown >= (0.5 if terminal else SHOWN_EVERY_S):
            shown = time.monotonic()
            text = f"{shown - started:5.0f} s  " + " | ".join(f"{job.name}: {job.now or '...'}" for job in working)
            show_progress(text, terminal=terminal)
    if terminal:
        show_progress("", terminal=True)
    failed = failed or next((job for job in jobs if job.error), None)
    if failed and failed.error:
        sys.stderr.write("".join(f"{line}\n" for line in failed.output[-200:]))
        raise failed.error


def show_progress(text: str, *, terminal: bool) -> None:
    """Replace the line of progress of a terminal; else print a line."""
    width = shutil.get_terminal_size().columns - 1
    print(f"\r\033[K{text[:width]}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)


def call(*command: str | Path, timeout_s: float | None = None, may_be_ended: bool = True, **options: Any) -> int:
    """Run a program as a part of the job of this thread.

    Returns its exit code, or 1 after the time limit. It is ended if another job fails, unless that would leave damage.
    """
    job: Job = _here.job
    if _stopping.is_set():
        fail("another part of the set-up failed", "its messages are above")
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipe, **options) as process:
        if may_be_ended:
            _running.add(process)
        timer = threading.Timer(timeout_s, process.kill) if timeout_s else None
        if timer:
            timer.start()
        assert process.stdout is not None
        rest = ""
        while chunk := os.read(process.stdout.fileno(), 65536).decode(errors="replace"):
            *lines, rest = re.split(r"[\r\n]+", rest + chunk)
            shown = [line.strip() for line in lines if line.strip()]
            job.output += [line for line in shown if not line.startswith("Building [")]
            job.now = shown[-1] if shown else job.now
        code = process.wait()
        _running.discard(process)
        if timer:
            timer.cancel()
    return 1 if code < 0 else code


# --- Rust ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Rust:
    """Required and installed compiler, and the packages that provide it."""

    minimum: Version
    installed: Version | None
    """Version of `rustc` on PATH, whether sufficient or not."""
    suffix: str | None
    """Of the distribution's packages: `rustc` + suffix; None if it has no sufficient one, or rustup installed Rust."""

    @property
    def is_sufficient(self) -> bool:
        """True if the compiler on PATH can build the engine."""
        return self.installed is not None and self.installed >= self.minimum

    def missing_packages(self, *, dev: bool) -> list[tuple[str, ...]]:
        """Packages of the compiler and, for developers, of its formatter and linter."""
        if self.suffix is None:
            return []
        names = [] if self.is_sufficient else [f"rustc{self.suffix}", f"cargo{self.suffix}"]
        if dev and shutil.which("cargo-fmt") is None:
            names.append(f"rustfmt{self.suffix}")
        if dev and shutil.which("cargo-clippy") is None:
            names.append(f"rust{self.suffix}-clippy")
        return [(name,) for name in names]


def minimum_rust() -> Version:
    """The `rust-version` of Cargo.toml."""
    manifest = tomllib.loads((CHECKOUT / "Cargo.toml").read_text(encoding="utf-8"))
    return version_in(manifest["workspace"]["package"]["rust-version"]) or ()


def plan_rust(minimum: Version) -> Rust:
    """Use the compiler on PATH if it is new enough, else look at the distribution's packages."""
    installed = installed_rust()
    if installed is not None and installed >= minimum and shutil.which("cargo"):
        return Rust(minimum=minimum, installed=installed, suffix=suffix_of_installed())
    if can_install():
        update_package_lists()  # A new machine may know no security updates, which is where Debian's newer compiler is.
    names = [name for name in run_quietly("apt-cache", "pkgnames", "rustc").split() if is_compiler_package(name)]
    return Rust(minimum=minimum, installed=installed, suffix=choose_suffix(candidates(names), minimum))


def suffix_of_installed() -> str | None:
    """The suffix of the package that the `rustc` on PATH belongs to."""
    owner = run_quietly("dpkg", "-S", os.path.realpath(str(shutil.which("rustc")))).partition(":")[0]
    return owner.removeprefix("rustc") if is_compiler_package(owner) else None


def installed_rust() -> Version | None:
    """Version of the `rustc` on PATH."""
    return version_in(run_quietly("rustc", "--version"))


def is_compiler_package(name: str) -> bool:
    """`rustc` itself, Debian's `rustc-web` (newer, built for browsers), or Ubuntu's `rustc-1.NN`."""
    return re.fullmatch(r"rustc(-web|-\d+\.\d+)?", name) is not None


def choose_suffix(versions: dict[str, str], minimum: Version) -> str | None:
    """The suffix of the newest sufficient compiler package; the plain package if that one is sufficient."""
    sufficient = {name: version for name, text in versions.items() if (version := version_in(text) or ()) >= minimum}
    if "rustc" in sufficient:
        return ""
    newest = max(sufficient, key=lambda name: sufficient[name], default=None)
    return None if newest is None else newest.removeprefix("rustc")


def version_in(text: str) -> Version | None:
    """The first dotted number in a text."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else None


def require_rust(rust: Rust, venv: Path) -> None:
    """Stop with a hint unless a sufficient compiler is there now; link one with a version in its name."""
    if rust.suffix is not None:
        link_compiler(rust.suffix, venv)
    now = installed_rust()
    if now is not None and now >= rust.minimum and shutil.which("cargo"):
        return
    minimum = ".".join(map(str, rust.minimum))
    found = f"found {'.'.join(map(str, now))} at {shutil.which('rustc')}" if now else "found none"
    if rust.suffix is not None:
        packages = " ".join(name for (name,) in rust.missing_packages(dev=False))
        hint = f"install this distribution's newer compiler as root: `apt-get install {packages}`"
    elif shutil.which("rustup"):
        hint = "run `rustup update stable`"
    else:
        hint = "this distribution has no newer compiler: install Rust with rustup (https://rustup.rs)"
    fail(f"Rust {minimum} or newer is required to build the engine, {found}", hint)


def link_compiler(suffix: str, venv: Path) -> None:
    """Make `cargo` mean the installed package where its programs have a version in their names or are off PATH."""
    for name in ("cargo", "rustc", "rustdoc", "rustfmt", "cargo-fmt", "cargo-clippy", "clippy-driver"):
        places = [f"/usr/lib/rust{suffix}/bin/{name}", f"/usr/bin/{name}{suffix}", f"/usr/bin/{name}"]
        program = next((place for place in places if Path(place).exists()), None)
        if program is None or shutil.which(name) == program:
            continue
        link = venv / "bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(program)


# --- System packages ----------------------------------------------------------------------------------------------


def venv_packages() -> list[tuple[str, ...]]:
    """Debian splits `venv` off Python."""
    if importlib.util.find_spec("ensurepip") is not None:
        return []
    major, minor = sys.version_info[:2]
    return [(f"python{major}.{minor}-venv", "python3-venv")]


def install_packages(wanted: list[tuple[str, ...]]) -> None:
    """Install the first known package of each tuple, in one call; one by one if that call fails."""
    if not wanted or not can_install():
        return
    update_package_lists()
    known = without_snaps(candidates([name for names in wanted for name in names]))
    packages = sorted({next(name for name in names if name in known) for names in wanted if known.keys() & names})
    if not packages:
        return
    log(f"installing {len(packages)} packages: {' '.join(packages)}")
    if apt_install(packages, wait_s=LOCK_WAIT_S) or len(packages) == 1:
        return
    log("warning: that failed; installing them one by one")
    for package in packages:
        apt_install([package], wait_s=1)


def without_snaps(versions: dict[str, str]) -> dict[str, str]:
    """Leave out Ubuntu's packages that install a snap (`2:1snap1-0ubuntu2`): a snap cannot read temporary files."""
    return {name: version for name, version in versions.items() if not re.search(r"\d+snap\d", version)}


def can_install() -> bool:
    """Return True if this user may install packages without being asked for a password."""
    if shutil.which("apt-get") is None:
        return False
    if os.geteuid() == 0:
        return True
    sudo = shutil.which("sudo")
    return sudo is not None and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0


_updated = False


def update_package_lists() -> None:
    """Once, because lists that are missing or old name packages that are not there."""
    global _updated
    if not _updated:
        log("updating the package lists")
        run_quietly(*as_root(), "apt-get", "update", "-qq")
        _updated = True


def apt_install(packages: list[str], *, wait_s: int) -> bool:
    """Install without questions; packages of the user are never removed, and services of the user not restarted.

    A new machine upgrades itself in the background (`unattended-upgrades`), which holds the lock of dpkg for minutes.
    """
    lock = f"DPkg::Lock::Timeout={wait_s}"
    command = ["apt-get", "install", "--yes", "-q", "-o", lock, "--no-install-recommends", "--no-remove", *packages]
    environment = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
    with_environment = [*as_root(), "env", *(f"{name}={value}" for name, value in environment.items()), *command]
    with services_not_started():
        return call(*with_environment, may_be_ended=False) == 0


@contextmanager
def services_not_started() -> Iterator[None]:
    """Database servers are installed for tests and must not start as services of this machine (invoke-rc.d(8))."""
    if POLICY.exists():
        yield  # The machine has a policy of its own.
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".policy-rc.d") as policy:
        policy.write("#!/bin/sh\n# Written by scripts/setup of iosonde while it installs packages.\nexit 101\n")
        policy.flush()
        call(*as_root(), "install", "--mode=755", policy.name, POLICY)
    try:
        yield
    finally:
        call(*as_root(), "rm", "--force", POLICY)


def as_root() -> list[str]:
    """Command prefix for commands that need root; empty for root itself."""
    return [] if os.geteuid() == 0 else ["sudo", "-n"]


def candidates(names: list[str]) -> dict[str, str]:
    """The version that apt would install of each of these packages that it knows."""
    return parse_policy(run_quietly("apt-cache", "policy", *names)) if names else {}


def parse_policy(text: str) -> dict[str, str]:
    """The output of `apt-cache policy` -> candidate version by package."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif line.strip().startswith("Candidate:") and not line.endswith("(none)"):
            found[name] = line.split()[1]
    return found


def require_build_tools(tools: ModuleType) -> None:
    """Stop unless everything is there that building needs."""
    for tool in tools.missing(["build"]):
        if tool.name not in ("cargo", "rustc"):
            fail(f"`{tool.name}` is missing: {tool.purpose}", f"install the package `{tool.packages[0]}`")


def warn_of_missing(tools: ModuleType, *, dev: bool) -> None:
    """Name what could not be installed, and what that costs: tests that need it are skipped, and listed."""
    missing = tools.missing(["runtime", "lab", "dev"]) if dev else []
    for tool in missing:
        log(f"warning: `{tool.name}` is missing: {tool.purpose} (package `{' or '.join(tool.packages)}`)")
    known = candidates([name for tool in missing for name in tool.packages]) if not can_install() else {}
    names = {next((name for name in tool.packages if name in known), "") for tool in missing} - {""}
    if names:
        log(f"hint: `sudo apt-get install {' '.join(sorted(names))}`, then `make setup-dev` again")


# --- Cassandra ----------------------------------------------------------------------------------------------------


def assemble_cassandra(tools: ModuleType) -> None:
    """Copy Cassandra's jar files from the Maven repository of this machine's settings; only tests need them."""
    maven = tools.find("mvn")
    if maven is None:
        return
    target = Path(tools.CASSANDRA_PLACES[-2 if os.geteuid() == 0 else -1]).expanduser()
    log(f"assembling Cassandra in `{target}`")
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".cassandra-") as directory:
            made = Path(directory, "jars")
            command = [
                *(maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(CASSANDRA)),
                *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={made}"),
            ]
            done = call(*command, timeout_s=ASSEMBLE_S, cwd=directory)
            if done == 0 and any(made.glob("cassandra-all-*.jar")):
                made.chmod(0o755)
                made.rename(target)
                return
    except OSError as error:
        log(f"warning: {error}")
    log("warning: Cassandra could not be assembled; its tests will be skipped")


# --- Engine and Python package ------------------------------------------------------------------------------------


FEATURES = "workloads"
"""Of the engine's package: a study, or the tests, build the program for Cassandra and MongoDB when they need it."""
ENGINE_CPU_S = 150
"""CPU time of compiling everything, rounded: 146 s on an Intel Xeon."""


def build_engine() -> None:
    """Compile with Cargo; installing the Python package then finds everything built."""
    cpus = len(os.sched_getaffinity(0))
    minutes = f"{ENGINE_CPU_S / cpus / 60:.1f}".removesuffix(".0")
    log(f"compiling; from nothing that takes about {minutes} min on {cpus} CPUs")
    command = ["cargo", "build", "--release", "--locked", "--package", "iosonde-engine", "--features", FEATURES]
    progress = {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "70", "CARGO_TERM_COLOR": "never"}
    if call(*command, cwd=CHECKOUT, env={**os.environ, **progress}):
        fail("the engine could not be built", "the compiler's messages are above")


def build_clients(directory: Path) -> None:
    """Replace an older program of the clients."""
    if call(CHECKOUT / "scripts" / "build-clients", directory):
        fail("`iosonde-engine-clients` could not be built", "the compiler's messages are above")


FERRETDB_S = 600
"""Time for building FerretDB, after which its tests are skipped."""


def build_ferretdb(program: Path) -> None:
    """Build the server of the tests of `mongodb`, unless it is there; they are skipped where that fails."""
    source = CHECKOUT / "packaging" / "ferretdb"
    if program.exists() or shutil.which("go") is None:
        return
    log("building FerretDB")
    program.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
    # Under another name until it is complete: an interrupted build leaves no program.
    built = program.with_name("ferretdb.building")
    command = ["go", "build", "-o", str(built), "."]
    if call(*command, cwd=source, env=environment, timeout_s=FERRETDB_S) == 0:
        built.rename(program)
    else:
        log("warning: FerretDB could not be built; the tests of `mongodb` will be skipped")
    built.unlink(missing_ok=True)


def install_moto(place: Path) -> None:
    """Install the server of the tests of S3 in the versions that are tested; they are skipped where that fails.

    An environment of its own, because it requires other versions of iosonde's dependencies.
    """
    versions = MOTO / "constraints.txt"
    installed = place / versions.name
    if installed.exists() and installed.read_bytes() == versions.read_bytes():
        return
    log("installing moto")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Under another name until it is complete: an interrupted installation leaves no environment.
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".moto-") as directory:
            made = Path(directory, "environment")
            pip = (made / "bin" / "pip", "install", "--disable-pip-version-check", "--no-compile")
            wanted = ("--requirement", MOTO / "requirements.txt", "--constraint", versions)
            if call(sys.executable, "-m", "venv", made) or call(*pip, *wanted):
                log("warning: moto could not be installed; the tests of S3 will be skipped")
                return
            shutil.copy(versions, made)
            shutil.rmtree(place, ignore_errors=True)
            made.rename(place)
    except OSError as error:
        log(f"warning: {error}; the tests of S3 will be skipped")


def install_dependencies(venv: Path, *, dev: bool) -> None:
    """Create the virtual environment unless it is there, and install what iosonde imports and what builds it."""
    if not (venv / "bin" / "pip").exists() and call(sys.executable, "-m", "venv", venv):
        fail(f"cannot create a virtual environment in `{venv}`", "install the package `python3-venv`")
    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    project = declared["project"]
    extra = project["optional-dependencies"]["dev"] if dev else []
    install(venv, *declared["build-system"]["requires"], *project["dependencies"], *extra)


def install_python_package(venv: Path) -> None:
    """Editable; its dependencies are there."""
    programs = {"MATURIN_PEP517_ARGS": f"--features {FEATURES}"}  # Otherwise those of pyproject.toml.
    install(venv, "--no-build-isolation", "--no-deps", "--editable", CHECKOUT, **programs)


def install(venv: Path, *arguments: str | Path, **environment: str) -> None:
    """Run pip with the versions that are tested. The first import of a module compiles it; most are never imported."""
    options = ("--disable-pip-version-check", "--no-compile", "--constraint", CONSTRAINTS)
    if call(venv / "bin" / "pip", "install", *options, *arguments, env={**os.environ, **environment}):
        fail("the Python packages could not be installed", "pip's messages are above")


def prepend_to_path(directory: Path) -> None:
    """Programs of the environment come first, as in the Makefile."""
    os.environ["PATH"] = f"{directory}:{os.environ.get('PATH', '')}"


def run_quietly(*command: str) -> str:
    """A program's output in English; empty where it is missing or fails."""
    english = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=english).stdout
    except OSError:
        return ""


def log(text: str) -> None:
    """Progress goes to standard error."""
    job: Job | None = getattr(_here, "job", None)
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{clear}{job.name}: {text}" if job else text, file=sys.stderr, flush=True)


def fail(what: str, hint: str) -> NoReturn:
    """Stop with an error."""
    raise SetupError(f"{what}\n\nhint: {hint}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]).absolute(), dev="dev" in sys.argv[2:])
    except SetupError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
