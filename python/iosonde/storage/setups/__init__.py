"""What a study creates on a target or sets for a run: file systems, loop devices, kernel settings, purges."""
