"""From facts to answers: pure functions, frame in and frame out.

`metrics.py` turns facts into metrics and is the only place that does; everything else here takes its frames.
`findings.py` puts the answers into sentences. Start with these two.
"""
