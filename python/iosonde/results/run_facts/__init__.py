"""Facts of a run: each column of the table `runs` is one row, with its value from the record."""
