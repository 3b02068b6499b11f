"""What the zoo's PyTorch networks share: weights that keep activations near 1, and the export to ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

OPSET = 17


def build(seed: int, make: Callable[[], nn.Module], *sample: torch.Tensor) -> nn.Module:
    """Make a network in evaluation mode, whose weights depend on `seed` only.

    Scales and shifts of batch norms are drawn at random and their statistics measured on `sample`, so that activations
    keep a size near 1 through any depth and folding a batch norm wrongly changes the output.
    """
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    network = make()
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0.0, 0.2)
        norm.momentum = 1.0
    if norms:
        network.train()
        with torch.no_grad():
            network(*sample)
    torch.set_rng_state(generator_state)
    return network.eval()


def export(
    network: nn.Module,
    sample: tuple[torch.Tensor, ...],
    path: str | Path,
    names: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    *,
    keep_batch_norm: bool = False,
) -> None:
    """Write `network` as an ONNX file with dynamic axes.

    Parameters
    ----------
    sample : tuple of Tensor
        Inputs to trace with.
    names, outputs : sequence of str
        Names of the inputs and outputs.
    axes : mapping
        Per input or output, the names of its dynamic dimensions.
    keep_batch_norm : bool
        Leave batch norms as nodes, instead of having the exporter fold them into the convolutions.
    """
    mode = torch.onnx.TrainingMode.PRESERVE if keep_batch_norm else torch.onnx.TrainingMode.EVAL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's notes on tracing, and on its own successor
        torch.onnx.export(
            network,
            sample,
            str(path),
            input_names=list(names),
            output_names=list(outputs),
            dynamic_axes={k: dict(v) for k, v in axes.items()},
            opset_version=OPSET,
            training=mode,
            dynamo=False,
        )
