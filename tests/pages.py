"""The documentation as its tests see it: pages, their blocks, commands, links and anchors."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from house import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
_FENCE = re.compile(r"^( *)```(\S*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(ai-cli [^`]+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\.\.\.|VERB|NAME\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: the language, what stands behind it, and the text."""

    page: str
    language: str
    title: str
    text: str


def label(path):
    """Return a page's path as people write it."""
    return path.relative_to(ROOT).as_posix()


def blocks(*languages, pages=PAGES):
    """Return the fenced blocks in these languages."""
    return [
        Block(label(page), match[2], match[3].strip(), dedent(match[4]))
        for page in pages
        for match in _FENCE.finditer(page.read_text())
        if match[2] in languages
    ]


def prose(page):
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def commands(pages=PAGES):
    """Return (page, words) of every `ai-cli` command, in blocks and in the text."""
    found = []
    for block in blocks("bash", "sh", "console", pages=pages):
        lines = block.text.replace("\\\n", " ").splitlines()
        found += [(block.page, line) for line in lines if line.strip().startswith("ai-cli ")]
    for page in pages:
        found += [(label(page), text) for text in _INLINE.findall(" ".join(prose(page).split()))]
    return [(page, words_of(line)) for page, line in found if not _PLACEHOLDER.search(line)]


def words_of(line):
    """Split a command as a shell does, up to a pipe, a redirection or a comment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((i for i, word in enumerate(words) if set(word) <= set("|&;<>")), len(words))
    return words[1:end]


def links(page):
    """Return the targets of a page's links inside the repository, as (file, anchor)."""
    targets = [target for target in _LINK.findall(prose(page)) if "://" not in target]
    parted = [target.partition("#") for target in targets]
    return [
        ((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parted
    ]


def anchors(page):
    """Return the anchors of a page's headings."""
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page))]
    return {slug.strip().replace(" ", "-") for slug in slugs}


def everything(pages=PAGES):
    """Return the text of all pages."""
    return "\n".join(Path(page).read_text() for page in pages)
