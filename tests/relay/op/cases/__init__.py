"""Cases of operators, by family."""

from tests.op import cases as shared_cases  # noqa: F401 - registers them
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
from tests.relay.op.contract import take_cases_of_shared

__all__ = [
    "activation", "conv", "create", "crop", "elementwise", "index", "layout", "loss", "manipulate", "matmul", "norm",
    "pool", "quantized", "random", "reduce", "resize", "scatter", "slices", "sort", "unique", "vision",
    "window",
]  # fmt: skip

take_cases_of_shared()
