"""Hooks of MkDocs: pages at the top of the repository join the site, and links to them lead there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the pages of the site; a file that is not part of it is named without a link."""
    # Tests read a second word after the language of a code block, which the renderer does not know.
    markdown = re.sub(r"^```(\w+) [^`\n]+$", r"```\1", markdown, flags=re.MULTILINE)
    is_project_page = page.file.src_uri in PAGES
    if is_project_page:
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    markdown = re.sub(rf"\]\(\.\./({'|'.join(map(re.escape, PAGES))})", r"](\1", markdown)
    elsewhere = r"\.\./[^)]*|LICENSE|THIRD-PARTY-NOTICES\.txt|README\.md" if is_project_page else r"\.\./[^)]*"
    return re.sub(rf"\[([^\]]+)\]\((?:{elsewhere})\)", r"\1", markdown)
