"""The averaging graph is the mean of its members' outputs, in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from deploynas import graph
from deploynas.errors import DeployNASError, InputError
from deploynas.export import ensemble_file as module
from deploynas.export.ensemble_file import ensemble_file, softmax
from deploynas.export.verification import open_session
from deploynas.graph.averaging import averaged
from deploynas.space import Space


def member(space: Space, seed: int, batch: int | None = None) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    network = space.sample(rng)
    shapes = graph.weight_shapes(space, network)
    # wide enough that members are sure of different classes
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    return graph.network(space, network, weights, batch)


def images(space: Space, count: int) -> np.ndarray:
    shape = (count, space.in_channels, space.height, space.width)
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("members", [2, 3, 5])
def test_softmax_of_its_output_is_the_mean_of_the_members_probabilities(tiny: Space, members: int) -> None:
    graphs = [member(tiny, seed) for seed in range(members)]
    whole = averaged(graphs, {"space": "tiny"}).SerializeToString()
    for count in (1, 3, 8):
        x = images(tiny, count)
        alone = [softmax(open_session(one.SerializeToString()).run(None, {"input": x})[0]) for one in graphs]
        session = open_session(whole)
        (found,) = session.run(None, {"input": x})
        assert np.abs(alone[0] - alone[1]).max() > 0.01  # they disagree
        assert softmax(found) == pytest.approx(np.mean(alone, axis=0), abs=1e-6)
        assert np.exp(found) == pytest.approx(np.mean(alone, axis=0), abs=1e-6)
    assert [value.name for value in session.get_outputs()] == ["logits"]
    assert session.get_modelmeta().custom_metadata_map["space"] == "tiny"


def test_it_is_checked_on_the_images(tiny: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [member(tiny, seed).SerializeToString() for seed in range(2)]
    x, labels = images(tiny, 5), np.zeros(5, int)
    file = ensemble_file(contents, lambda: [(x, labels)], {})
    assert file.images == 5 and file.max_difference < 1e-6
    (found,) = open_session(file.content).run(None, {"input": x})
    assert file.accuracy == float((found.argmax(1) == 0).mean())
    other = averaged([member(tiny, 0), member(tiny, 2)], {})
    monkeypatch.setattr(module, "averaged", lambda members, metadata: other)
    with pytest.raises(DeployNASError, match="differ by"):
        ensemble_file(contents, lambda: [(x, labels)], {})


def test_members_must_take_the_same_images(tiny: Space) -> None:
    with pytest.raises(InputError, match="same images"):
        averaged([member(tiny, 0), member(tiny, 1, batch=2)], {})
