"""How a valid file becomes one that nobody meant: trees of values, text by its tokens, and bytes.

A tree keeps its shape but for a few places, so that a reader gets past its first lines; bytes are flipped, cut and
spliced, as a bad disk or a hostile hand would.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Sequence
from typing import Any

# what no serialiser writes stands in a tree under a name, and is put in once the tree is text
RAW = {
    "@@RAW0@@": "1e999",
    "@@RAW1@@": "9" * 4301,
    "@@RAW2@@": "[" * 2000 + "]" * 2000,
    "@@RAW3@@": '{"a":' * 500 + "1" + "}" * 500,
    "@@RAW4@@": '"\\ud800"',
    "@@RAW5@@": "[" * 50 + "1" + "]" * 50,
    "@@RAW6@@": "NaN",
    "@@RAW7@@": "-Infinity",
}
MARKUP = (
    '"><img src=x onerror=fuzzed()>',
    "</script><script>fuzzed()</script>",
    "<svg/onload=fuzzed()>",
    "' onmouseover='fuzzed()",
    "javascript:fuzzed()",
    "--><b onclick=fuzzed()>",
    "</title></style></pre><iframe src=javascript:fuzzed()>",
)
TEXTS = (
    "",
    " ",
    "\x00",
    "a\nb",
    "\x1b[31m\x07",
    "\u202egnp",
    "é",
    "𝔘" * 20,
    "x" * 5000,
    "../../../../etc/passwd",
    "/etc/passwd",
    "C:\\Windows",
    "..\\..",
    "con",
    "%s%n{0}{a.b}",
    "$(id)",
    "nan",
    "1e400",
    "p500",
    "p0",
    "p٣",
    "²",
    "true",
    "fp7",
    "all",
    "-1",
)
NUMBERS = (
    0,
    -0.0,
    -1,
    1,
    2,
    3,
    0.5,
    1e-320,
    1e-9,
    1e9,
    1e18,
    1e300,
    -1e300,
    1.7e308,
    65_535,
    2**31,
    2**53,
    2**63,
    10**30,
    10**400,
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, [1, "a", None], [[0.0]] * 3)
TOKEN = re.compile(r"[A-Za-z]+|\d+(?:\.\d+)?|\s+|.", re.DOTALL)


def nasty(rng: random.Random) -> Any:
    """A value that a reader may not expect."""
    kind = rng.choice((MARKUP, TEXTS, NUMBERS, NUMBERS, OTHERS, tuple(RAW)))
    return copy.deepcopy(rng.choice(kind))


def tree(data: Any, others: Sequence[Any], rng: random.Random) -> Any:
    """The same value with one to four places changed."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        data = _changed(data, others, rng)
    return data


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside; of long lists of numbers only some, or nothing else would be met."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    if len(items) > 12 and not isinstance(items[0][1], (dict, list)):
        items = [*items[:3], *items[-2:]]
    for key, item in items:
        found.append((value, key))
        if isinstance(item, (dict, list)):
            _places(item, found)
    return found


def _changed(data: Any, others: Sequence[Any], rng: random.Random) -> Any:
    places = _places(data, []) if isinstance(data, (dict, list)) else []
    if not places or rng.random() < 0.01:
        return nasty(rng)
    container, key = rng.choice(places)
    value = container[key]
    match rng.randrange(14):
        case 0:
            del container[key]
        case 1 if isinstance(container, list):
            container.insert(key, copy.deepcopy(value))
        case 1:
            container[f"{key}_"] = copy.deepcopy(value)
        case 2:
            container[key] = rng.choice(([value], {"a": value}, str(value), None))
        case 3 if isinstance(value, (int, float)) and not isinstance(value, bool):
            container[key] = rng.choice(
                (-value, value * 1e6, value + 1, value - 1, value / 1e6, round(value), value * 2)
            )
        case 4:
            other, at = rng.choice(places)
            if at in other if isinstance(other, dict) else at < len(other):
                container[key] = copy.deepcopy(other[at])
        case 5 if isinstance(value, (list, dict)):
            value.clear()
        case 6 if isinstance(value, list) and value:
            container[key] = value[: rng.randrange(len(value))]
        case 7 if isinstance(value, list) and value:
            container[key] = value * rng.choice((2, 3, 300))
        case 8 if isinstance(container, dict):
            del container[key]
            container[str(rng.choice((*MARKUP, *TEXTS, 1, "schema")))] = value
        case 9 if isinstance(value, str):
            container[key] = rng.choice(
                (value + rng.choice(MARKUP), value[: len(value) // 2], value * 3, rng.choice(TEXTS))
            )
        case 10 if others:
            where = _places(rng.choice(others), [])
            if where:
                other, at = rng.choice([place for place in where if place[1] == key] or where)
                container[key] = copy.deepcopy(other[at])
        case _:
            container[key] = nasty(rng)
    return data


def json_text(data: Any) -> bytes:
    """As JSON, with what no serialiser writes."""
    text = json.dumps(data, ensure_ascii=False)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode("utf-8", "surrogatepass")


def yaml_text(data: Any) -> bytes:
    import yaml

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    for name, raw in RAW.items():
        text = text.replace(f"'{name}'", raw.replace("NaN", ".nan").replace("-Infinity", "-.inf"))
    return text.encode("utf-8", "surrogatepass")


def words(text: str, others: Sequence[str], rng: random.Random) -> str:
    """A text by its tokens: a grammar's words and numbers stay whole, and change places."""
    tokens = TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(tokens) + 1)
        match rng.randrange(8):
            case 0:
                del tokens[at : at + rng.randrange(1, 4)]
            case 1:
                tokens[at:at] = tokens[at : at + rng.randrange(1, 12)]
            case 2:
                tokens[at:at] = [str(rng.choice(NUMBERS))]
            case 3:
                tokens[at : at + 1] = [str(rng.choice((*TEXTS, *MARKUP, *NUMBERS)))]
            case 4 if others:
                other = TOKEN.findall(rng.choice(others))
                start = rng.randrange(len(other) + 1)
                tokens[at : at + rng.randrange(4)] = other[start : start + rng.randrange(1, 30)]
            case 5:
                tokens[at:at] = [rng.choice("()[]{}|~+,\"';:\n\t -_.eE")] * rng.choice((1, 1, 2, 3000))
            case 6 if tokens:
                one, two = rng.randrange(len(tokens)), rng.randrange(len(tokens))
                tokens[one], tokens[two] = tokens[two], tokens[one]
            case _:
                tokens[at : at + 1] = [str(rng.randrange(12))]
    return "".join(tokens)


def octets(content: bytes, others: Sequence[bytes], rng: random.Random, head: int | None = None) -> bytes:
    """Bytes flipped, cut, doubled, overwritten, spliced; often near the head, where formats are described."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        limit = len(data) if head is None or rng.random() < 0.5 else min(head, len(data))
        at = rng.randrange(limit) if limit else 0
        match rng.randrange(8):
            case 0 if data:
                data[at] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del data[at:]
            case 3:
                del data[at : at + rng.choice((1, 2, 4, 8, 64))]
            case 4:
                data[at:at] = data[at : at + rng.choice((1, 4, 16, 256))]
            case 5:
                size = rng.choice((1, 2, 4, 8))
                value = rng.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), 2 ** (8 * size - 1) - 1, 10**6))
                data[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))
            case 6 if others:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                data[at : at + rng.randrange(64)] = other[start : start + rng.choice((1, 8, 64, 1024))]
            case _:
                data[at : at + 1] = rng.choice((*TEXTS, *MARKUP)).encode("utf-8", "surrogatepass")
    return bytes(data)
