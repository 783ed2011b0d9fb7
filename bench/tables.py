"""Run the commands whose output docs/performance.md holds, and replace that output.

    python bench/tables.py [--only TEXT]

In the page a comment with the command, `<!-- python bench/vs_fio.py --pairs 9 -->`, precedes its output, which ends at
`<!-- end -->`. Commands run one after the other, those that contain TEXT if it is given. A command that fails leaves
the old output, and ends this program with status 1 after all others have run. A program that misses its aim exits with
1 as well, but has a table.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from shared import options

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs/performance.md"
BLOCK = re.compile(r"^<!-- ((?:python|cargo) [^\n]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Run the commands; 1 if any failed."""
    given = options(__doc__, only="")
    commands = [command for command in BLOCK.findall(PAGE.read_text()) if given.only in command]
    return int(not all([replaced(command) for command in commands]))


def replaced(command: str) -> bool:
    """Run a command and write its output into the page. Messages go to standard error."""
    print(f"$ {command}", file=sys.stderr, flush=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(shlex.split(command), cwd=CHECKOUT, env={**os.environ, "PATH": path}, stdout=-1, text=True)
    output = done.stdout.strip()
    if done.returncode and "\n| " not in output:
        print(f"failed with status {done.returncode}: {command}\n{output}", file=sys.stderr)
        return False
    shown = output if "\n| " in output else f"```text\n{output}\n```"
    page = PAGE.read_text()  # Read again: commands take an hour in all, and the text may have been edited.
    old = next(block[0] for block in BLOCK.finditer(page) if block[1] == command)
    PAGE.write_text(page.replace(old, f"<!-- {command} -->\n{shown}\n<!-- end -->"))
    return True


if __name__ == "__main__":
    sys.exit(main())
