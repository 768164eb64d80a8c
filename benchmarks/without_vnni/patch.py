"""A copy of the installed ONNX Runtime that believes to be on a processor without AVX-512 and VNNI.

    python benchmarks/without_vnni/patch.py FOLDER
    env $(cat FOLDER/environment) python -c "import onnxruntime"

Kernels are chosen by what `cpuid` answers, once, when the library is loaded. The copy has a breakpoint in the place of
every `cpuid`, and a small library, preloaded, answers without those bits: so the kernels of older processors can be run
and timed on a newer one. What they compute is what they compute there; how fast they are is this processor's. Needs
gcc and objdump, Linux on x86-64.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

CPUID, BREAKPOINT = b"\x0f\xa2", b"\xcc\x90"  # the handler returns behind the breakpoint, to a `nop`


def main(folder: Path) -> None:
    spec = find_spec("onnxruntime")
    assert spec and spec.origin, "onnxruntime is not installed"
    copy = folder / "onnxruntime"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(Path(spec.origin).parent, copy)
    libraries = [*copy.rglob("onnxruntime_pybind11_state*.so"), *copy.rglob("libonnxruntime.so*")]
    for library in libraries:
        print(f"{library.name}: {patch(library)} places")
    shim = folder / "mask_cpuid.so"
    source = Path(__file__).with_name("mask_cpuid.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", shim, source], check=True)
    (folder / "environment").write_text(f"PYTHONPATH={folder.resolve()} LD_PRELOAD={shim.resolve()}\n")


def patch(library: Path) -> int:
    listed = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", library], check=True, capture_output=True, text=True
    )
    addresses = [int(line.split(":")[0], 16) for line in listed.stdout.splitlines() if line.endswith("\tcpuid")]
    content = bytearray(library.read_bytes())
    for address in addresses:
        place = _offset(content, address)
        assert content[place : place + 2] == CPUID, f"no cpuid at {address:x}"
        content[place : place + 2] = BREAKPOINT
    library.write_bytes(content)
    return len(addresses)


def _offset(elf: bytearray, address: int) -> int:
    """Where in the file a 64-bit ELF has what it loads at an address."""
    (table,), (size, count) = struct.unpack_from("<Q", elf, 0x20), struct.unpack_from("<HH", elf, 0x36)
    for header in range(table, table + size * count, size):
        kind, _, offset, start, _, length = struct.unpack_from("<IIQQQQ", elf, header)
        if kind == 1 and start <= address < start + length:
            return offset + address - start
    raise ValueError(f"{address:x} is in no segment")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
