"""From the text of a file to plain values, bounded in size, depth and numbers before any model sees them.

A file may come from a stranger. One that is nested without end, whose aliases unfold to millions of values, or that
has a number no computer counts with is refused here in a sentence, so that nothing behind this border meets it.
"""

from __future__ import annotations

import ast
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from deploynas.errors import InputError

if TYPE_CHECKING:
    import yaml

LARGEST_JSON = 64 << 20  # bytes; the largest tables, with all their samples, have a few million
LARGEST_YAML = 64 << 10  # written by hand: the longest that ship have 2 KiB, and a second reads 100
DEEPEST = 60  # levels of lists and mappings; the deepest of our files have ten
MOST_YAML_VALUES = 20_000  # with every alias written out
LONGEST_LITERAL = 100_000  # characters of a network; the longest that anybody writes have a few thousand
LONGEST_SHOWN = 60  # characters of a value in a message


class _Refused(ValueError):
    """What is wrong with a value, and where it is."""


def text_of(path: Path, largest: int) -> str:
    """The content of a text file of at most so many bytes."""
    try:
        if path.is_file() and (size := path.stat().st_size) > largest:
            raise InputError(f"{path}: has {size:,} bytes, and a file of its kind at most {largest:,}")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: is a folder, expected a file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def json_of(text: str, path: Path) -> object:
    """The value of a JSON document; numbers that are none are refused by name."""
    try:
        found: object = json.loads(text)
        _require_plain(found)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}: not a complete JSON document ({error.msg})",
            hint="the file may have been cut off while it was copied; write it again",
        ) from error
    except RecursionError as error:
        raise _too_deep(path) from error
    except _Refused as error:
        raise InputError(f"{path}: damaged: {error}") from error
    except ValueError as error:  # the only other one: Python converts no longer integers
        raise InputError(f"{path}: damaged: it has an integer of thousands of digits") from error
    return found


def yaml_of(text: str, path: Path | str) -> tuple[yaml.Node, object]:
    """The nodes of a YAML document, which know their lines, and its value."""
    import yaml

    try:
        root = _composed(text)
        if root is None:
            raise InputError(f"{path}: expected a mapping of keys to values, found nothing")
        if sum(1 for _ in _unfolded(root)) > MOST_YAML_VALUES:
            raise InputError(f"{path}: has more than {MOST_YAML_VALUES:,} values, its aliases written out")
        data = yaml.safe_load(text)
        _require_plain(data)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{where}: not valid YAML: {' '.join(shown(problem, 200).split())}") from error
    except RecursionError as error:
        raise _too_deep(path) from error
    except _Refused as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        # a value that is not of the type its tag says, or whose form suggests: `!!int x`, `2001-99-99`
        raise InputError(f"{path}: not valid YAML: a value cannot be read ({shown(str(error))})") from error
    return root, data


def _composed(text: str) -> yaml.Node | None:
    """The nodes of a document; one that is too deep is given up there, since to parse on takes squared time."""
    import yaml

    class Bounded(yaml.SafeLoader):
        level = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            self.level += 1
            if self.level > DEEPEST:
                raise RecursionError
            try:
                return super().compose_node(parent, index)
            finally:
                self.level -= 1

    return yaml.compose(text, Loader=Bounded)


def literal_of(text: str) -> object:
    """The value of a Python literal, as `str()` prints lists and dictionaries; a ValueError if it is none."""
    if len(text) > LONGEST_LITERAL:
        raise ValueError(f"more than {LONGEST_LITERAL} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is odd, and refused or plain all the same
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:  # the last: parentheses too deep
        raise ValueError("not a literal") from error


def shown(value: object, longest: int = LONGEST_SHOWN) -> str:
    """A value in a message: not longer than a line, and without characters that a terminal obeys."""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: 2 * longest])
    return text if len(text) <= longest else f"{text[:longest]}…"


def _unfolded(root: yaml.Node) -> Iterator[yaml.Node]:
    """Every node of a document, as often as it is meant; no more than are needed to refuse it."""
    import yaml

    waiting, met = [root], 0
    while waiting and met <= MOST_YAML_VALUES:
        node = waiting.pop()
        met += 1
        yield node
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _require_plain(document: object) -> None:
    """Refuse depth without end, NaN, infinity, integers beyond 64 bits, and halves of characters."""
    level: list[tuple[dict | list, tuple]] = [([document], ())]
    for _ in range(DEEPEST + 2):
        inner: list[tuple[dict | list, tuple]] = []
        for container, place in level:
            for key, value in container.items() if isinstance(container, dict) else enumerate(container):
                if isinstance(value, (dict, list)):
                    inner.append((value, (*place, key)))
                elif reason := _why_not(value):
                    raise _Refused(f"`{dotted((*place, key)[1:])}` {reason}")
                if isinstance(key, str) and _why_not(key):
                    raise _Refused(f"a key of `{dotted(place[1:])}` {_why_not(key)}")
        level = inner
        if not level:
            return
    raise RecursionError


def _why_not(value: object) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else f"is {value}, which is no number to count with"
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "is an integer of more than 64 bits"
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return "has half of a character"
    return None


def dotted(location: tuple) -> str:
    """A place in a document: `stages[2].out`."""
    text = ""
    for part in location:
        name = shown(str(part))
        text += f"[{part}]" if isinstance(part, int) else f".{name}" if text else name
    return text or "the file"


def _too_deep(path: Path | str) -> InputError:
    return InputError(f"{path}: damaged: nested more than {DEEPEST} levels deep")
