"""Cases of operators, by family."""

from tests.relay.op.cases import (
    activation,
    conv,
    create,
    crop,
    elementwise,
    index,
    layout,
    loss,
    manipulate,
    matmul,
    norm,
    pool,
    quantized,
    random,
    reduce,
    resize,
    scatter,
    sort,
    unique,
    vision,
    window,
)
from tests.relay.op.cases import slice as slices

__all__ = [
    "activation", "conv", "create", "crop", "elementwise", "index", "layout", "loss", "manipulate", "matmul", "norm",
    "pool", "quantized", "random", "reduce", "resize", "scatter", "slices", "sort", "unique", "vision",
    "window",
]  # fmt: skip
