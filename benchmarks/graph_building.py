"""How long the ONNX graphs of a whole space take: every block configuration, and whole networks.

python benchmarks/graph_building.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

import deploynas as dn

RESULTS = Path(__file__).parent / "results" / "graph_building.json"


def main() -> None:
    space = dn.Space.load("imagenet")
    places = [
        (s, b, c)
        for s, stage in enumerate(space.stages)
        for b in range(stage.max_depth)
        for c in range(len(stage.configs))
    ]
    rng = np.random.default_rng(0)
    networks = [space.sample(rng) for _ in range(20)]
    rows = []
    for precision in ("fp32", "int8"):
        started = time.perf_counter()
        for place in places:
            dn.graph.block(space, *place, precision=precision).SerializeToString()
        blocks_s = time.perf_counter() - started
        started = time.perf_counter()
        for network in networks:
            dn.graph.network(space, network, precision=precision).SerializeToString()
        network_ms = 1000 * (time.perf_counter() - started) / len(networks)
        rows.append({"precision": precision, "blocks": len(places), "blocks_s": blocks_s, "network_ms": network_ms})
    print("| precision | all blocks | one whole network |\n|---|---:|---:|")
    for row in rows:
        print(f"| {row['precision']} | {row['blocks']} in {row['blocks_s']:.2f} s | {row['network_ms']:.0f} ms |")
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
