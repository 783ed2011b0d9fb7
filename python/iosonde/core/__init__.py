"""What every other package is built on. It imports nothing of iosonde."""
