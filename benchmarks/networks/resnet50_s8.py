"""ResNet-50 quantised with signed activations, otherwise as `resnet50_int8`."""

from pathlib import Path

from onnxruntime.quantization import QuantType

from benchmarks.networks import resnet50_int8

SIZES = resnet50_int8.SIZES
inputs = resnet50_int8.inputs


def export(path: str | Path) -> None:
    resnet50_int8.export(path, QuantType.QInt8)
