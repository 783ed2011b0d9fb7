"""An external command as a case: any benchmark, with everything else from iosonde. See docs/commands.md.

The spec is carried out by `iosonde.engine.supervisor`.
"""

TOPICS = (("commands", "External commands"),)
