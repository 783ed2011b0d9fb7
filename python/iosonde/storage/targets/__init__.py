"""Targets that a user can name: directories, files, devices, setups on them, and targets without storage."""
