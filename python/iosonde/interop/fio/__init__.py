"""fio: job files in, json+ out.

Import reads in steps, one file each: `jobfile` the ini dialect or `command_line`, `options` what fio's options are and
what becomes of each, `given` values in fio's units, `convert` sections to the parameters of a stream, `study` which of
them run together, on which bytes, and the study file. Export is `json_plus`.
"""

from iosonde.interop.fio.study import Imported, import_command_line, import_job_file

__all__ = ["Imported", "import_command_line", "import_job_file"]
