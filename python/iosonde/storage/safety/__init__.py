"""Device safety: write guard, consent, claims, and the journal of created objects with their removal."""
