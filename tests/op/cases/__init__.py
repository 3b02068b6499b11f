"""Calls of every operator, by family."""

from tests.op.cases import (  # noqa: F401
    attention,
    conv,
    elementwise,
    index,
    manipulate,
    matmul,
    multinomial,
    nbits,
    nms,
    norm,
    pool,
    quant,
    reduce,
    resize,
    rnn,
    sampling,
    sort,
    training,
    trees,
    vision,
)
