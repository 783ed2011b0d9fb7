"""An external command as a case: any benchmark, with everything else from iosonde. See docs/commands.md.

The spec (`spec.py`) is carried out by `iosonde.supervisor`. `template.py` has the placeholders of arguments, `named.py`
the metrics that a study names.
"""

TOPICS = (("commands", "External commands"),)
