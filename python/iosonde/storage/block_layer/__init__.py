"""What the kernel reports: devices and their stacks, loops, volumes, mounts, limits; contents by their signatures."""
