"""Exit codes and environment variables of the command line: the one list behind `--help`, the man page and the docs."""

from __future__ import annotations

import textwrap

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_RUNS_FAILED = 3
EXIT_WRONG_DATA = 4
EXIT_INTERRUPTED = 130

EXIT_CODES = {
    EXIT_OK: "Success.",
    EXIT_ERROR: "An error; `check`: a regression; `history`: a loss; `qualify`: fail.",
    EXIT_USAGE: "Wrong usage; `check`, `qualify` and `history --fail-on-loss`: any error.",
    EXIT_RUNS_FAILED: "Most runs failed, `fleet` lacks a target, or a precision is not reached; `check`: undetermined; "
    "`qualify`: undecided.",
    EXIT_WRONG_DATA: "Data that was read was not the data written; before every other code.",
    EXIT_INTERRUPTED: "Stopped by Ctrl-C or SIGTERM. Completed runs are kept.",
}
"""`lab` returns the exit code of its command; of subcommands that decide, 1 is a decision, and 2 any error."""

_DECIDING = ("check", "qualify")


def error_code(subcommand: str | None) -> int:
    """Return the exit code of an error; of a subcommand that decides, 1 would be read as its decision."""
    return EXIT_USAGE if subcommand in _DECIDING else EXIT_ERROR


ENVIRONMENT = {
    "IOSONDE_ENGINE": "Engine to use instead of the installed one.",
    "IOSONDE_ENGINE_CLIENTS": "Engine program with clients of servers.",
    "IOSONDE_FEATURES": "Python packages of further features.",
    "IOSONDE_LAB_DEVICES": "Set by `lab` for its command: device paths.",
    "XDG_STATE_HOME": "Parent of the journal (default `~/.local/state`).",
    "XDG_CACHE_HOME": "Parent of the cache (default `~/.cache`).",
    "PGPASSWORD": "Password of a PostgreSQL server (else `~/.pgpass`).",
    "PGPASSFILE": "Password file of PostgreSQL (default `~/.pgpass`).",
    "MYSQL_PWD": "Password of a MariaDB server (else `~/.my.cnf`).",
    "MONGODB_PASSWORD": "Password of a MongoDB server.",
    "CASSANDRA_PASSWORD": "Password of a Cassandra server.",
    "AWS_ACCESS_KEY_ID": "Access key of an S3 server.",
    "AWS_SECRET_ACCESS_KEY": "Secret key of an S3 server.",
    "AWS_SESSION_TOKEN": "Session token of temporary S3 credentials.",
    "CASSANDRA_HOME": "Cassandra distribution to use.",
    "JAVA_HOME": "Java to run Cassandra with.",
    "NO_COLOR": "Any value but the empty one disables colour.",
    "COLUMNS": "Output width (default: the terminal's, else 80).",
}


def epilog() -> str:
    """The end of `iosonde --help`; `\\b` keeps the lines of a paragraph apart."""
    lines = ((f"  {code:<5}", text.replace("`", "")) for code, text in EXIT_CODES.items())
    codes = "\n".join(textwrap.fill(text, 79, initial_indent=code, subsequent_indent=" " * 7) for code, text in lines)
    width = max(map(len, ENVIRONMENT)) + 2
    variables = "\n".join(f"  {name:{width}}{text}" for name, text in ENVIRONMENT.items())
    return f"\b\nExit codes:\n{codes}\n\n\b\nEnvironment variables:\n{variables}".replace("`", "")
