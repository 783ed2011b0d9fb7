"""The subcommands, a file each (see `iosonde.cli`)."""
