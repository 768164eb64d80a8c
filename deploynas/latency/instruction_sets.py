"""Which instructions for integers and short floats the processor has, as Linux names them.

What an 8-bit file computes, and how fast, depends on them; a report says on which it was verified.
"""

from __future__ import annotations

from pathlib import Path

# in the order in which they came: x86, then ARM
NAMED = (
    "avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16",
    "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip


def instruction_sets(root: Path = Path("/")) -> list[str]:
    """Empty where the system does not tell."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    flags: set[str] = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags |= set(value.split())
    return [name for name in NAMED if name in flags]
