"""Checks by numbers: gradients against differences, conditions over all values of their variables, random arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import arith, ir, runtime


def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Mapping[str, Any] | Sequence[Any],
    grad_values: Mapping[str, Any] | Sequence[Any],
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Compare gradients with differences of a function.

    Parameters
    ----------
    function : callable
        Returns a number for the inputs, by name where they are a mapping.
    input_values, grad_values : mapping or sequence of array_like
        Where it is evaluated, and the gradients there.
    function_value : float, optional
        ``function(**input_values)``, which is not needed here.
    delta : float
        Half the distance between the values that are compared.
    atol, rtol : float
        Tolerances of the root of the mean square of the difference: absolute, and relative to that of the gradient.

    Raises
    ------
    AssertionError
        When a gradient is another one; it names the input.
    """
    del function_value
    by_name = isinstance(input_values, Mapping)
    inputs = {k: np.array(v) for k, v in (input_values.items() if by_name else enumerate(input_values))}
    for name, expected in grad_values.items() if isinstance(grad_values, Mapping) else enumerate(grad_values):
        found = np.zeros(inputs[name].shape)
        for index in np.ndindex(found.shape):
            ends = []
            for step in (delta, -delta):
                moved = inputs[name].astype("float64").copy()
                moved[index] += step
                given: dict[Any, Any] = {**inputs, name: moved.astype(inputs[name].dtype)}
                ends.append(float(function(**given) if by_name else function(*given.values())))
            found[index] = (ends[0] - ends[1]) / (2 * delta)
        given_grad = np.asarray(expected)
        apart = given_grad.shape != found.shape or not np.isfinite(given_grad).all()
        if apart or _rms(found - given_grad) > atol + rtol * _rms(found):
            raise AssertionError(f"the gradient of '{name}' is another one: by differences {found}, given {given_grad}")


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype="float64")))) if values.size else 0.0


def check_bool_expr_is_true(
    bool_expr: ir.PrimExpr, vranges: Mapping[Any, Any], cond: ir.PrimExpr | None = None
) -> None:
    """Assert that a condition holds for all values of its variables, or all for which `cond` does.

    Parameters
    ----------
    vranges : mapping of Var to Range
        The values of each variable.
    """
    analyzer = arith.Analyzer()
    axes = [range(_known(r.min), _known(r.min) + _known(r.extent)) for r in vranges.values()]
    for values in itertools.product(*axes):
        env = dict(zip(vranges, values, strict=True))
        constants = {v: v * 0 + x for v, x in env.items()}
        if cond is not None and not ir.as_int(analyzer.simplify(ir.substitute(cond, constants))):
            continue
        if not ir.as_int(analyzer.simplify(ir.substitute(bool_expr, constants))):
            shown = ", ".join(f"{v.name} = {x}" for v, x in env.items())
            raise AssertionError(f"{bool_expr} does not hold where {shown}")


def _known(value: Any) -> int:
    found = ir.as_int(value)
    if found is None:
        raise AssertionError(f"the range's end is not known: {value}")
    return found


def np_dtype_from_str(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, ml_dtypes included."""
    return runtime.numpy_dtype(dtype)


def generate_random_array(dtype: str, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Make an array of random numbers: all values of an integer type, standard normal ones of floats."""
    kind, rng = runtime.numpy_dtype(dtype), np.random.default_rng()
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    return rng.standard_normal(shape).astype(kind)
