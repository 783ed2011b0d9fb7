"""Other tools' formats: job files that become studies, results that become their files.

One folder or file a tool. Each takes or gives what the rest of iosonde already has (a study file, a result set), so
elsewhere only the command line uses it.
"""
