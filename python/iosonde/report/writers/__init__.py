"""Writers of reports: HTML, Markdown, terminal."""
