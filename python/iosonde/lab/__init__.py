"""The lab: devices and virtual machines whose performance is known, to measure against.

`throttled_devices` creates block devices of exactly known rate on this machine; `machine.Machine` runs a command in a
virtual machine with such drives, under a kernel that has md, dm and bcache. All that the lab creates is removed when
its `with` block ends, and when the process is killed: processes die with their owner, mounts live in namespaces of
those processes, and loop devices detach themselves. So nothing has to be noted in the journal of `iosonde.storage`.
"""

from iosonde.lab.device import ThrottledDevice, throttled_devices
from iosonde.lab.limits import Limits

__all__ = ["Limits", "ThrottledDevice", "throttled_devices"]
