"""Content of a report, in order."""
