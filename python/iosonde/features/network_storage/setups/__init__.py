"""The server side of setups on this machine: an NVMe/TCP target of the kernel, and an export of its NFS server."""
