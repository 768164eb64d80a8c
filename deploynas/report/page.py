"""The frame of every page: one self-contained HTML file, style and script inside, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib import resources

# no request leaves the page, and of scripts it runs its own, by their hashes: one that a name brought in does not
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data:; script-src"


def page(title: str, body: Sequence[str], scripts: Sequence[str] = ("page.js",)) -> str:
    folder = resources.files("deploynas.report")
    style, *code = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", *scripts))
    code = [f"\n{script}" for script in code]
    policy = " ".join([POLICY, *map(script_source, code)] if code else [POLICY, "'none'"])
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style></head><body><main>",
            *body,
            '</main><div id="tip" role="status"></div>',
            *(f"<script>{script}</script>" for script in code),
            "</body></html>",
            "",
        ]
    )


def script_source(script: str) -> str:
    """How a policy names one inline script."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def section(title: str, *content: str, note: str = "", kind: str = "") -> str:
    below = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{below}{"".join(content)}</section>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are text, not HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
