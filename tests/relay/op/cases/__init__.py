"""Cases of operators, by family."""

from tests.relay.op.cases import (
    activation,
    conv,
    create,
    elementwise,
    index,
    layout,
    loss,
    manipulate,
    matmul,
    norm,
    pool,
    reduce,
    resize,
    scatter,
    sort,
)
from tests.relay.op.cases import slice as slices

__all__ = [
    "activation", "conv", "create", "elementwise", "index", "layout", "loss", "manipulate", "matmul", "norm", "pool",
    "reduce", "resize", "scatter", "slices", "sort",
]  # fmt: skip
