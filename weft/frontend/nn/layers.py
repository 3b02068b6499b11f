"""Modules with parameters of their own: linear layers, convolutions, normalisations, embeddings, activations."""

from __future__ import annotations

from typing import Any

from weft.frontend.nn import op
from weft.frontend.nn.module import Module
from weft.frontend.nn.parameter import Parameter
from weft.frontend.nn.tensor import Tensor

__all__ = ["Linear", "ReLU"]


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return op.relu(x)


class Linear(Module):
    """``x @ weight.T + bias``, with a weight of (out_features, in_features).

    Parameters
    ----------
    in_features, out_features : int, str or PrimExpr
        Sizes of the last dimension before and after.
    bias : bool
        Whether there is a bias.
    dtype : str, optional
        The data type of the parameters.
    out_dtype : str, optional
        The data type of the result, and of the bias; by default that of the weight.
    """

    def __init__(
        self,
        in_features: Any,
        out_features: Any,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
        self.in_features, self.out_features, self.out_dtype = in_features, out_features, out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), dtype if out_dtype is None else out_dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to a tensor of any rank."""
        x = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return x if self.bias is None else x + self.bias
