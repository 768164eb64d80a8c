"""The documentation as data: pages in the order in which a reader meets them, and the fenced blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RUNNABLE = ("sh", "python")

_FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    page: str  # relative to the root
    line: int
    language: str
    text: str
    not_run: str | None  # why, where a page says so

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """README first, then whatever it links to, in that order."""
    linked = [link.partition("#")[0] for link in links("README.md")]
    return ["README.md", *dict.fromkeys(link for link in linked if link.endswith(".md"))]


def blocks(page: str) -> Iterator[Block]:
    lines = (ROOT / page).read_text().splitlines()
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if not opening:
            at += 1
            continue
        indent, language = opening.groups()
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
        reason = _NOT_RUN.match(lines[at - 1]) if at else None
        text = "\n".join(line.removeprefix(indent) for line in lines[at + 1 : end]) + "\n"
        yield Block(page, at + 1, language, text, reason.group(1) if reason else None)
        at = end + 1


def links(page: str) -> list[str]:
    """Relative links and images; fenced blocks are not looked at."""
    text = re.sub(r"^\s*```.*?^\s*```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in _LINK.findall(text) if "://" not in link]


def anchors(page: str) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
