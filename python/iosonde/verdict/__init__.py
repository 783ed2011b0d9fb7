"""Whether a run measured its device, the harness or a cache, with the evidence and every warning."""
