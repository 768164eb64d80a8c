"""Versions of the libraries that a process has loaded, whatever is installed."""

from __future__ import annotations

from pathlib import Path

from machine_files import written

from deploynas.latency.loaded_libraries import loaded_libraries

MAPS = """7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libcudart.so.12.4.127
7f01-7f02 r--p 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libcudart.so.12.4.127
7f02-7f03 r-xp 00000000 08:01 2 /site packages/nvidia/cudnn/lib/libcudnn.so.9
7f03-7f04 r-xp 00000000 08:01 3 /usr/lib/libnvinfer.so.10.0.1
7f04-7f05 r-xp 00000000 08:01 4 /site/onnxruntime_qnn/libQnnHtp.so
7f05-7f06 r-xp 00000000 08:01 5 /usr/lib/libcudnn_graph.so.9.1.0
7f06-7f07 rw-p 00000000 00:00 0 [heap]
"""


def test_versions_are_those_of_the_files(tmp_path: Path) -> None:
    found = loaded_libraries(written(tmp_path, {"proc/self/maps": MAPS}))
    assert found == {"QnnHtp": "", "cudart": "12.4.127", "cudnn": "9", "nvinfer": "10.0.1"}
    assert loaded_libraries(tmp_path / "nowhere") == {}
