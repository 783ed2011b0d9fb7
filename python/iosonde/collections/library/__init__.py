"""Many result sets at once: found below a directory, summarised, and listed on one page.

`summary.py` reduces one to a `Summary`, `indexing.py` finds all of them and does that with several processes,
`collect.py` copies them into one library, `page.py` writes the HTML page. `collections.history` follows the same
summaries over time.
"""
