"""Cases of operators, by family."""

from tests.relay.op.cases import activation, conv, create, elementwise, index, manipulate, matmul, norm, pool, reduce
from tests.relay.op.cases import slice as slices

__all__ = [
    "activation", "conv", "create", "elementwise", "index", "manipulate", "matmul", "norm", "pool", "reduce", "slices",
]  # fmt: skip
