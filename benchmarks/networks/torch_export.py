"""What the zoo's PyTorch networks share: weights that keep activations near 1, and the export to ONNX."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
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


@dataclass(frozen=True)
class OneTensor:
    """A network of one tensor, whose methods are what a module of the zoo has.

    Attributes
    ----------
    seed : int
        What its weights depend on.
    shape : tuple of int or None
        Of what it is fed with; a size says, in order, the dimensions that are None.
    traced, sizes : int or tuple of int, and a sequence of them
        The size that it is exported with, and those that it is fed with.
    given, returned : (str, mapping of int to str)
        The names of its input and of its output, and those of their dynamic dimensions.
    """

    seed: int
    make: Callable[[], nn.Module]
    shape: tuple[int | None, ...]
    traced: int | tuple[int, ...]
    sizes: Sequence[int | tuple[int, ...]]
    given: tuple[str, Mapping[int, str]]
    returned: tuple[str, Mapping[int, str]]
    keep_batch_norm: bool = False

    def sample(self) -> torch.Tensor:
        """What it is exported with."""
        return torch.randn(*self._filled(self.traced), generator=torch.Generator().manual_seed(0))

    def network(self) -> nn.Module:
        """The PyTorch module."""
        return build(self.seed, self.make, self.sample())

    def export(self, path: str | Path) -> None:
        """Write the ONNX file."""
        (given, _), (returned, _) = ends = self.given, self.returned
        made, keep = self.network(), self.keep_batch_norm
        export(made, (self.sample(),), path, [given], [returned], dict(ends), keep_batch_norm=keep)

    def inputs(self, rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
        """Feeds of one of its sizes."""
        return {self.given[0]: rng.standard_normal(self._filled(self.sizes[size]), np.float32)}

    def _filled(self, size: int | tuple[int, ...]) -> tuple[int, ...]:
        left = iter(size if isinstance(size, tuple) else (size,))
        return tuple(next(left) if d is None else d for d in self.shape)
