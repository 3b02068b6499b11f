"""Calls of every operator, by family."""

from tests.op.cases import conv, elementwise, index, manipulate, matmul, norm, pool, quant, reduce, resize, rnn, sort  # noqa: F401
