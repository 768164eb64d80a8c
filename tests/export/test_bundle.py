"""A bundle is whole or not there, and anyone can check it and use it without deploynas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.export.bundle import MANIFEST, ManifestAbout, check_manifest, staged, write_manifest
from deploynas.export.triton import Served, write_repository
from deploynas.provenance import origin
from deploynas.space import Space


def fill(stage: Path, text: str) -> None:
    (stage / "sub").mkdir()
    (stage / "sub" / "a.txt").write_text(text)
    write_manifest(stage, {"table": None}, {})


def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), staged(tmp_path / "bundle") as stage:
        fill(stage, "new")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with staged(tmp_path / "bundle") as stage:
        fill(stage, "first")
    with pytest.raises(RuntimeError), staged(tmp_path / "bundle") as stage:
        fill(stage, "second")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert (tmp_path / "bundle" / "sub" / "a.txt").read_text() == "first"
    with staged(tmp_path / "bundle") as stage:
        fill(stage, "second")
    assert (tmp_path / "bundle" / "sub" / "a.txt").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(InputError, match="is not a bundle"), staged(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").exists()


def test_the_manifest_notices_a_changed_file(tmp_path: Path) -> None:
    with staged(tmp_path / "bundle") as stage:
        fill(stage, "first")
    manifest = check_manifest(tmp_path / "bundle")
    assert [file.path for file in manifest.files] == ["sub/a.txt"]
    (tmp_path / "bundle" / "sub" / "a.txt").write_text("other")
    with pytest.raises(InputError, match=r"sub/a\.txt changed"):
        check_manifest(tmp_path / "bundle")
    assert origin(tmp_path / "nowhere") is None and origin(tmp_path / "bundle" / MANIFEST) is not None


def test_triton_gets_a_repository(tmp_path: Path, tiny: Space) -> None:
    about = ["undisturbed: 1 ms", "on this machine as it was: 2 ms"]
    write_repository(tmp_path, Served("tiny", b"model", tiny, ["a", "b", "c"], Device.load("cpu-1t"), about))
    config = (tmp_path / "tiny" / "config.pbtxt").read_text()
    assert config.splitlines()[:3] == [*(f"# {line}" for line in about), 'name: "tiny"']
    assert 'name: "tiny"' in config and "dims: [ 1, 16, 12 ]" in config and "dims: [ 3 ]" in config
    assert "KIND_CPU" in config and 'string_value: "1"' in config
    assert config.count("{") == config.count("}") and config.count("[") == config.count("]")
    assert (tmp_path / "tiny" / "1" / "model.onnx").read_bytes() == b"model"
    assert (tmp_path / "tiny" / "labels.txt").read_text().split() == ["a", "b", "c"]


@pytest.mark.parametrize("shorter", [None, 18])
def test_predict_sees_what_the_network_was_trained_on(tmp_path: Path, shorter: int | None) -> None:
    """The script's preprocessing against torchvision's, which training uses; images larger and oblong."""
    from PIL import Image
    from torchvision import transforms

    from deploynas.export.predict import preprocess

    rng = np.random.default_rng(0)
    for width, height in ((37, 60), (61, 33), (16, 16)):
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        how = {"channels": 3, "height": 16, "width": 16, "resize_shorter_side": shorter}
        how |= {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.25]}
        resize = (
            [transforms.Resize((16, 16))]
            if shorter is None
            else [transforms.Resize(shorter), transforms.CenterCrop(16)]
        )
        steps = [*resize, transforms.ToTensor(), transforms.Normalize(how["mean"], how["std"])]
        np.testing.assert_allclose(preprocess(image, how), transforms.Compose(steps)(image).numpy(), atol=1e-5)


def test_predict_runs_where_there_is_no_torch(tmp_path: Path, tiny: Space) -> None:
    """In a process in which torch, timm, onnx and deploynas itself cannot be imported."""
    import shutil

    from PIL import Image

    from deploynas import graph
    from deploynas.export import predict
    from deploynas.export.metadata import Metadata, Preprocessing

    how = Preprocessing(channels=1, height=16, width=12, resize_shorter_side=None, mean=[0.5], std=[0.5])
    properties = Metadata(preprocessing=how, labels=["cat", "dog", "fish"]).props("fp32")
    model = graph.network(tiny, tiny.smallest(), batch=None, metadata=properties)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    shutil.copy(predict.__file__, tmp_path / "predict.py")
    Image.fromarray(np.arange(900, dtype=np.uint16).astype(np.uint8).reshape(30, 30)).save(tmp_path / "image.png")
    for name in ("torch", "timm", "onnx", "deploynas", "torchvision", "scipy", "pydantic"):
        (tmp_path / "blocked" / name).mkdir(parents=True)
        (tmp_path / "blocked" / name / "__init__.py").write_text("raise ImportError('not here')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "blocked")}
    call = [sys.executable, "predict.py", "image.png", "--json"]
    done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    assert {guess["label"] for guess in answer["classes"]} == {"cat", "dog", "fish"}
    assert sum(guess["p"] for guess in answer["classes"]) == pytest.approx(1, abs=1e-5)
    (tmp_path / "not.png").write_text("text")
    call = [sys.executable, "predict.py", "not.png"]
    broken = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert broken.returncode == 2 and "not.png" in broken.stderr and "Traceback" not in broken.stderr


def test_predict_opens_the_file_as_it_was_measured(tmp_path: Path, tiny: Space) -> None:
    """And says so where it cannot: another provider, or a plug-in that is not installed."""
    from deploynas import graph
    from deploynas.export.metadata import Metadata, Preprocessing
    from deploynas.export.predict import classify, load
    from deploynas.latency.session_record import SessionRecord

    how = Preprocessing(channels=1, height=16, width=12, resize_shorter_side=None, mean=[0.5], std=[0.5])
    properties = Metadata(preprocessing=how, labels=["cat", "dog", "fish"]).props("fp32")
    model = graph.network(tiny, tiny.smallest(), batch=None, metadata=properties)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    images = np.random.default_rng(0).standard_normal((5, 1, 16, 12)).astype(np.float32)

    def opened(**session: object):
        record = SessionRecord(provider="CPUExecutionProvider", threads=2, intra_op_threads=2).model_copy(
            update=session
        )
        write_manifest(tmp_path, {}, ManifestAbout(session=record))
        return load(tmp_path / "model.onnx")

    alone = opened(session_options={"session.force_spinning_stop": "1"})
    options = alone.session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.get_session_config_entry("session.force_spinning_stop") == "1" and alone.notes == ()
    fixed = opened(batch=4)
    assert fixed.session.get_inputs()[0].shape[0] == 4 and fixed.notes == ()
    np.testing.assert_allclose(classify(fixed.session, images), classify(alone.session, images), atol=1e-5)
    for elsewhere in ({"provider": "XExecutionProvider"}, {"provider": "XExecutionProvider", "plugin": "not_here"}):
        other = opened(**elsewhere, provider_options={"x": "1"})
        (note,) = other.notes
        assert "XExecutionProvider" in note and other.session.get_providers() == ["CPUExecutionProvider"]
