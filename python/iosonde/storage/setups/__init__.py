"""Objects that a study creates on a target, and settings of a run: file systems, loop devices, queues, purges."""
