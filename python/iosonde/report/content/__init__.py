"""What goes into a report, in which order."""
