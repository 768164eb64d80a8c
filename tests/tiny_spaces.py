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
