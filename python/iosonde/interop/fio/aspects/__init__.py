"""The load that a section of a job file describes, one module per aspect: parameters, and notes on differences."""
