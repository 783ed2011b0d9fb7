"""Facts about each interval of a run, from readings at the end of each."""
