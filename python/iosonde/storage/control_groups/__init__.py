"""Control groups around engines and servers: limits on memory, and accounts of memory, CPU time and I/O."""
