"""Instruments: what surrounds each run and adds facts and warnings to its record."""
