"""Words that iosonde does not use in texts for users, with the term to use instead (docs/glossary.md)."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

BANNED = {
    r"\btells?\b(?! (?:them|you|us|[\w ]*apart))|\btold\b": "report, return, show",
    r"\bspeaks? of\b|\bspoken of\b": "describe",
    r"\bstands? (?:on|behind|for|still|beside|below)\b|\bstood (?:on|behind|for)\b": "based on, backed by, means",
    r"\bwhat is left\b|\bleft over\b|\bleft behind\b": "remaining, leftover",
    r"\bplaces in the queue\b|\bplaces (?:were )?free\b": "queue underutilized",
    r"\bmemory answered\b|\banswered by (?:memory|the page cache|a cache)\b|\bcache answered\b": "served from the page cache",
    r"\bthe tool,? not the disk\b|\bdisk or the tool\b|\bset by the (?:disk|tool)\b": "device-limited, harness-limited",
    r"\bgo on\b|\bgoes on\b|\bgoing on\b|\bwent on\b": "continue",
    r"\bheld back\b|\bhold back\b": "stalled, throttled",
    r"\bkeeps? (?:its|their) promise\b|\bpromise[sd]?\b": "expected value",
    r"\bfor good\b": "permanently",
    r"\bunmade\b|\bmade anew\b|\bmakes? anew\b": "created, removed, recreated",
    r"\bfurnish\w*": "create, provision",
    r"\bground that\b|\bprovider ground\b": "device provider",
    r"\bask(?:s|ed)? for what cannot\b|\bcannot be done\b": "unsupported",
    r"\buntold\b": "not reported",
    r"\bto be seen\b": "visible",
    r"\bas it lasts\b|\bin the course of time\b|\bin the course of\b": "over time, during",
    r"\bwhose file\b|\bwhose it is\b": "source",
    r"\bgives? back\b|\bgiven back\b": "recover",
    r"\bbeyond the memory\b": "larger than memory",
    r"\bunsure\b|\bhow sure\b": "low confidence",
    r"\bmeanwhile\b": "during the run, since then",
    r"\bdearer\b": "slower, more expensive",
    r"\bwhether what was written comes back\b|\bcomes? back as it was\b": "data verification",
    r"\bbegin (?:anew|again)\b|\banew\b": "again, start again",
    r"\bholds? something\b": "contains data",
    r"\bat the begin\b|\bthe begin of\b": "start",
    r"\bat its end\b": "finished, at the end",
    r"\bowes?\b": "missing runs",
    r"\boffers? no way\b|\bhas it\b(?= that)": "report",
    r"\bspeaks?\b|\bspoke\b": "use (a protocol), describe",
    r"\bsomebody\b|\bnobody\b|\banybody\b|\bwhoever\b": "another user, another process, none",
    r"\basks? for\b|\basked for\b": "require, request",
    r"(?<!there )\bis no (?:address|directory|key|number|operation|parameter|setting)\b": "is not a",
    r"\btid(?:y|ies) up\b": "collect garbage",
    r"\bso many\b": "this many",
}
"""Pattern -> what to write instead."""

SHARED = (r"\bfor good\b", r"\bgives? back\b|\bgiven back\b", r"\bholds? something\b")
BANNED_IN_CODE = {
    r"(?<![a-z])(?:told|tells|untold)(?![a-z])": "report, return, show",
    r"(?<![a-z])(?:begun|begin_of)(?![a-z])|\b(?:the|its|their) begin\b": "started, start",
    r"(?<![a-z])anew(?![a-z])": "again",
    r"\bof (?:its|their) own accord\b": "by itself, scheduled",
    r"(?<!of )(?<![a-z])courses?(?![a-z])": "run, progress, schedule",
    r"at_begin(?![a-z])": "at_start",
    r"\bspeaks?\b|\bspoke\b": "use (a protocol)",
    r"(?<![a-z])(?:furnish|unmade)\w*": "create, remove",
    r"\bspeaks? of\b|\bspoken of\b": "describe",
    r"\b(?:as it|may|what) (?:stands?|stood)\b|\bstands? (?:behind|beside|still|at the)\b": "is, is based on",
    r"\bheld back\b": "stalled, throttled",
    r"\bkeeps? (?:its|their) promise\b": "expected value",
    r"\bgoes on\b|\bgoing on\b|\bwent on\b": "continue",
    r"\bwhat is left\b|\bleft over\b|\bleft behind\b": "remaining",
    **{pattern: instead for pattern, instead in BANNED.items() if pattern in SHARED},
    r"\bwhose it is\b": "owner, source",
    r"(?<![a-z])said(?![a-z])": "reported, stated",
    r"(?<![a-z])(?:whoever|anybody)(?![a-z])": "every process, the reader",
}
"""The same for comments and names in `python`, `crates`, `tests`, `bench` and `scripts`."""


@dataclass(frozen=True)
class Use:
    place: str
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text} -> {self.instead}"


def uses(text: str, place: str, banned: Mapping[str, str] = BANNED) -> Iterator[Use]:
    """Banned words in a text, code and links left out. No pattern continues on the next line."""
    prose = re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "", text)
    lower = prose.lower()
    for pattern, instead in banned.items():
        if not any(stem in lower for stem in stems(pattern)):
            continue
        for found in re.finditer(pattern, lower):
            start, end = prose.rfind("\n", 0, found.start()) + 1, prose.find("\n", found.end())
            near = prose[max(found.start() - 30, start) : min(found.end() + 30, len(prose) if end < 0 else end)].strip()
            number = prose.count("\n", 0, found.start()) + 1
            yield Use(f"{place}:{number}", f"`{found[0]}` in `{near}`", instead)


@cache
def stems(pattern: str) -> set[str]:
    """Texts of which each match has at least one: a search for them takes a tenth of the time."""
    plain = re.sub(r"[a-z]\?|\[[^]]*\]\??|\\.\*?", "" if "(" not in pattern else " ", pattern)
    words = set(re.findall("[a-z]+", plain)) - {"the", "of", "to", "on", "in", "it", "is", "as", "at", "no"}
    return words if "(" in pattern else set(plain.split("|"))


def without_code(text: str) -> str:
    """Markdown with its code blocks emptied; lines keep their numbers."""
    return re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def pages() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").glob("*.md"))


def messages(source: str) -> Iterator[tuple[int, str]]:
    """String literals of a module that are no docstrings, with their lines: the texts that users see."""
    if not any(uses(source.replace("\\n", " ").replace("`", ""), "")):
        return  # Parsing takes longer than all else.
    tree = ast.parse(source)
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
        # Names of columns, kinds and keys are no text.
        if is_text and not re.fullmatch(r"[A-Za-z_.]+", node.value):
            yield node.lineno, node.value


def without_literals(source: str) -> str:
    """Names and comments of a Python or Rust module; texts on one line are emptied, docstrings are kept."""
    return re.sub(r'(?<!")"(?!")(?:[^"\\\n]|\\.)*"', '""', source)


def sources() -> Iterator[Path]:
    """Every module of the product, its tests and benchmarks."""
    vocabulary = {Path(__file__), Path(__file__).with_name("test_vocabulary.py")}
    for folder in ("python", "tests", "bench", "scripts"):
        yield from sorted(set((ROOT / folder).rglob("*.py")) - vocabulary)
    yield from sorted((ROOT / "crates").rglob("*.rs"))


def rust_messages(source: str) -> Iterator[tuple[int, str]]:
    """String literals of a Rust module before its tests, with their lines."""
    code = re.sub(r"//[^\n]*", "", source.partition("#[cfg(test)]")[0])
    for found in re.finditer(r'"((?:[^"\\]|\\.)*)"', code, re.DOTALL):
        yield code[: found.start()].count("\n") + 1, found[1]


def page_sources() -> Iterator[Path]:
    """Templates and scripts of pages, suites, adapters and models of devices: files with texts that users see."""
    package = ROOT / "python/iosonde"
    yield from sorted(path for ending in ("html", "js") for path in package.rglob(f"*.{ending}"))
    folders = ("data/suites", "data/adapters", "features/simulated_drives/models")
    yield from sorted(path for folder in folders for path in (package / folder).glob("*.toml"))


STUDY_TEXTS = ("title", "question", "description", "caption", "rule", "also_check_rule")


def study_texts(path: Path) -> Iterator[str]:
    def texts(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for name, each in value.items():
                if isinstance(each, str) and name in STUDY_TEXTS:
                    yield each
                else:
                    yield from texts(each)
        elif isinstance(value, list):
            for each in value:
                yield from texts(each)

    yield from texts(tomllib.loads(path.read_text()))
