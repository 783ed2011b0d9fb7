"""The user-level NVMe driver: the backend `nvme_user`, and the handover of the controller (docs/nvme-driver.md).

`handover.py` binds a controller to vfio and back to the kernel's driver, `run.py` does so around the engine of
a run. The driver itself is the crate `nvme`.
"""
