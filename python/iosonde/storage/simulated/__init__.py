"""State of simulated drives between runs."""
