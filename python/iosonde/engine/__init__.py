"""The engines that carry out runs: the protocol with them, and the engine of external commands."""
