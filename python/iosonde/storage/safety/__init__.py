"""Whether a device may be written, what was created on it, and how that is removed: guard, consent, claims, journal."""
