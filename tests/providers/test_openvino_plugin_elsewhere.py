"""OpenVINO's plug-in where nothing is Intel's: it offers itself on no hardware, and the hint says what does run."""

from __future__ import annotations

import pytest
from runtimes import needs

import deploynas as dn
from deploynas.device import Device
from deploynas.errors import InputError
from deploynas.latency.hardware import hardware
from deploynas.space import Space

pytestmark = [
    needs("onnxruntime-ep-openvino"),
    pytest.mark.skipif("Intel" in hardware().processor, reason="this processor is Intel's"),
]


def test_the_hint_names_what_runs_here(quick: Device, tiny: Space) -> None:
    with pytest.raises(InputError, match="finds no device on this machine") as raised:
        dn.profile(quick.model_copy(update={"provider": "openvino-plugin"}), tiny)
    assert "it offers: none; it is for Intel's hardware alone" in (raised.value.hint or "")
    assert "`openvino-cpu` runs" in (raised.value.hint or "")
