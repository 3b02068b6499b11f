"""Operations on tensors of modules (``nn.op``)."""

from __future__ import annotations

from collections.abc import Sequence

from weft.frontend.nn.tensor import Tensor, apply

__all__ = ["matmul", "permute_dims", "relu"]


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """Multiply matrices; leading dimensions broadcast."""
    return apply("matmul", a, b, out_dtype=out_dtype, name=name)


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """Reorder the dimensions; reverse them where no axes are given."""
    return apply("permute_dims", x, axes=axes, name=name)


def relu(x: Tensor, name: str = "relu") -> Tensor:
    """``max(x, 0)``."""
    return apply("nn.relu", x, name=name)
