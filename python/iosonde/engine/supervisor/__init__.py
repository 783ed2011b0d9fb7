"""An engine for external commands: it starts one program, measures around it, and reads values from its output.

It uses the protocol of the Rust engine (docs/protocol.md), so that everything around a run is the same for both: the
spec comes on standard input, events go to standard output, `"stop"` or the end of standard input ends the run. It is a
process of its own (`python -m iosonde.engine.supervisor`): the kernel accounts for it and its children apart from
iosonde, and whatever a command starts is a descendant of it. Standard library only, so that it starts quickly.
"""

from __future__ import annotations

NAME = "iosonde-supervisor"
