"""Verdict on a run: device, harness or cache, with the evidence and every warning."""
