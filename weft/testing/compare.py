"""Comparisons with messages that say what differs."""

from typing import Any

import numpy as np

from weft import arith, ir


def assert_allclose(
    actual: object, desired: object, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True
) -> None:
    """Compare arrays or tensors as ``numpy.testing.assert_allclose``, shapes first.

    Parameters
    ----------
    actual, desired : array_like or weft.runtime.Tensor
    rtol, atol : float
        ``|actual - desired| <= atol + rtol * |desired|``.
    """
    found, expected = np.asanyarray(_array(actual)), np.asanyarray(_array(desired))
    if found.shape != expected.shape:
        raise AssertionError(f"shapes differ: expected {expected.shape}, found {found.shape}")
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, verbose=verbose)


def _array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def assert_prim_expr_equal(lhs: ir.PrimExpr | int, rhs: ir.PrimExpr | int) -> None:
    """Assert that two integer expressions have the same value for all values of their variables."""
    a, b = ir.as_expr(lhs), ir.as_expr(rhs)
    if not arith.Analyzer().can_prove_equal(a, b):
        raise AssertionError(f"not equal: {a} and {b}")
