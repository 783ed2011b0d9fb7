"""HdrHistogram: interval logs that its libraries read. `encoding` is one histogram, `log` the lines around them."""
