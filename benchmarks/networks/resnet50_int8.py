"""ResNet-50 quantised by ONNX Runtime: quantised and dequantised around every product, weights per channel."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from benchmarks.networks import resnet50
from benchmarks.networks.resnet50 import SIZES, inputs

__all__ = ["SIZES", "export", "inputs"]

CALIBRATION_SAMPLES = 4


class _Samples(CalibrationDataReader):
    """Random images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._left = [{"image": rng.standard_normal((1, 3, 224, 224), np.float32)} for _ in range(CALIBRATION_SAMPLES)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def export(path: str | Path, activations: QuantType = QuantType.QUInt8) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        replace(resnet50.NETWORK, keep_batch_norm=False).export(plain)
        options: dict[str, Any] = {"per_channel": True, "activation_type": activations, "weight_type": QuantType.QInt8}
        quantize_static(plain, path, _Samples(), quant_format=QuantFormat.QDQ, **options)
