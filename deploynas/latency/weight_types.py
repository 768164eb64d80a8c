"""In which ways 8-bit weights may be written for a device, so that its kernels compute what the file says.

Where they sum exactly, as the provider wants them. Where two products saturate, weights of 7 bits never reach the
limit, and unsigned ones take kernels that sum in 32 bits: which of the two is faster has to be measured.
"""

from __future__ import annotations

from deploynas.device import Device
from deploynas.latency.facts import Facts
from deploynas.providers import CPU
from deploynas.quantization import Quantization


def weight_types(device: Device, facts: Facts) -> tuple[Quantization, ...]:
    """One, unless it takes a measurement to choose; what a device file says is taken as it is."""
    own = device.quantized
    saturates = device.provider_name == CPU and facts.integer_sums == "saturating"
    if device.quantization is not None or not saturates or own.sums_exactly:
        return (own,)
    return own.model_copy(update={"weight_bits": 7}), own.model_copy(update={"weights": "uint8"})
