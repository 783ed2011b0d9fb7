"""Suites: several studies on one target, or on two, that end in one report.

A suite is a TOML file that lists studies with settings and what to quote from each (`planning.py`). Its directory has
one result set per study, created with its plan before the first run (`directory.py`), so a suite resumes at any point.
`summary.py` reads the values of both targets from the result sets; `page.py` writes them.
"""
