"""The base of all other packages. It imports nothing of iosonde."""
