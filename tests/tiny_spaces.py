"""The small spaces of the tests, as files say them: big enough for every kind of decision, small enough for seconds."""

# every fixed part there is, an odd ratio, images that are not square: for graphs, costs and latencies
TINY = """
name: tiny
input: {channels: 1, height: 16, width: 12}
classes: 3
stem: {out: 8, stride: 2, activation: hard_swish}
first: {out: 8, kernel: 3, stride: 1, activation: relu}
stages:
  - {out: 8, stride: 1, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 3], ratios: [2.5], kernels: [3, 5], se: [0]}
head: {features: 24, hidden: 16, activation: hard_swish}
"""

# fits the embedded data: for training, shipping and the commands
MINI = """
name: mini
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
stages:
  - {out: 8, stride: 2, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3, 5], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""

# fits the embedded data too, and has few enough paths to enumerate: for estimators
SMALL = """
name: small
input: {channels: 1, height: 28, width: 28}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
stages:
  - {out: 8, stride: 2, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 3], ratios: [1, 2], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""

# fits the embedded data, and leaves the input size open
SIZED = """
name: sized
input: {channels: 1, sizes: [16, 20, 28]}
classes: 10
stem: {out: 8, stride: 2, activation: relu}
first: {out: 8, kernel: 3, stride: 1, activation: relu}
stages:
  - {out: 8, stride: 2, activation: relu, depths: [1, 2], ratios: [1, 2], kernels: [3, 5], se: [0, 0.25]}
  - {out: 16, stride: 2, activation: hard_swish, depths: [1, 2], ratios: [1, 2], kernels: [3], se: [0]}
head: {features: 32, activation: hard_swish}
"""

# cells of three nodes, few enough to try all 64
CELLS = """
kind: cell
name: cells
input: {channels: 1, height: 8, width: 12}
classes: 3
stages: [{channels: 2, cells: 1}, {channels: 4, cells: 2}]
nodes: 3
operations: [none, skip_connect, nor_conv_3x3, avg_pool_3x3]
"""

# edges of their own: one is missing, and one has other operations than the rest
RAGGED_CELLS = """
kind: cell
name: ragged-cells
input: {channels: 2, height: 8, width: 8}
classes: 3
stem: {stride: 2}
stages: [{channels: 4, cells: 2}, {channels: 8, cells: 1}]
nodes: 4
operations: [none, skip_connect, nor_conv_1x1]
edges:
  - {source: 0, target: 1}
  - {source: 0, target: 2, operations: [nor_conv_5x5, avg_pool_3x3]}
  - {source: 1, target: 2, operations: [skip_connect]}
  - {source: 2, target: 3, operations: [nor_conv_3x3, skip_connect, none, avg_pool_5x5, nor_conv_7x7]}
"""
