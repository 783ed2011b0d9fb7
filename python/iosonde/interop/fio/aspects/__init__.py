"""What a section of a job file says of a load, one module an aspect: parameters, and notes of what differs."""
