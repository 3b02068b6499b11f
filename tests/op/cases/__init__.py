"""Calls of every operator, by family."""

from tests.op.cases import (  # noqa: F401
    conv,
    elementwise,
    index,
    manipulate,
    matmul,
    multinomial,
    norm,
    pool,
    quant,
    reduce,
    resize,
    rnn,
    sort,
)
