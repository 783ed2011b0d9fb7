"""Block devices as the kernel reports them: stacks, loops, volumes, mounts, limits; their contents by signatures."""
