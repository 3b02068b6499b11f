"""Gradients against differences, and counts of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import error, ir
from weft.relay.executor import create_executor
from weft.relay.expr import Call
from weft.relay.testing.run import run_infer_type
from weft.relay.transform import gradient
from weft.relay.types import TensorType
from weft.relay.walk import subexpressions


def count_ops(expr: ir.Expr) -> dict[str, int]:
    """Count the calls of each operator in an expression; a shared call counts once."""
    calls = (e.op.name for e in subexpressions(expr) if isinstance(e, Call) and isinstance(e.op, ir.Op))
    return Counter(calls)


def random_of_type(t: TensorType, scale: float = 1, mean: float = 0) -> np.ndarray:
    """Draw an array of a tensor type from a normal distribution."""
    return (mean + scale * np.random.randn(*t.concrete_shape)).astype(ir.numpy_dtype(t.dtype))


def check_grad(
    func: ir.Expr,
    inputs: Sequence[np.ndarray] | None = None,
    test_inputs: Sequence[np.ndarray] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Sequence[tuple[Any, Any]] | None = None,
    executor_kind: str = "debug",
) -> None:
    """Compare the gradient of the sum of a function's result with central differences.

    Parameters
    ----------
    func : Function
        From tensors to a tensor.
    inputs : sequence of array, optional
        Where to differentiate; by default random numbers about `mean`, of the size of `scale` (``10 * eps``).
    test_inputs : sequence of array, optional
        Those of `inputs` whose gradients are compared; by default all.
    eps : float
        How far the differences reach.
    atol, rtol : float
        How far gradients may be apart.
    mode : str
        As :func:`weft.relay.transform.gradient` takes it.
    target_devices : sequence of (target, device), optional
        Where to run; by default the CPU.
    executor_kind : str
        As :func:`weft.relay.create_executor` takes it.

    Raises
    ------
    AssertionError
        When they differ.
    """
    forward = run_infer_type(func)
    backward = run_infer_type(gradient(forward, mode=mode))
    spread = 10 * eps if scale is None else scale
    params: Any = forward.params  # type: ignore[attr-defined]
    given = [random_of_type(p.ty, spread, mean) for p in params] if inputs is None else list(inputs)
    compared = [i for i, x in enumerate(given) if test_inputs is None or any(x is t for t in test_inputs)]
    if not compared:
        raise error.InvalidArgument("check_grad: no gradient is compared", expected="test_inputs among inputs")
    for target, device in target_devices or [("llvm", None)]:
        run, back = (
            create_executor(executor_kind, device=device, target=target).evaluate(f) for f in (forward, backward)
        )
        _, grads = back(*given)
        for i in compared:
            found = grads[i].numpy().astype("float64")
            np.testing.assert_allclose(found, _differences(run, given, i, eps), atol=atol, rtol=rtol)


def _differences(run: Any, inputs: list[np.ndarray], i: int, eps: float) -> np.ndarray:
    """Differentiate by one input, element by element."""
    made = np.zeros(inputs[i].shape, "float64")
    for at in np.ndindex(*inputs[i].shape):
        sums = []
        for step in (eps, -eps):
            moved = [np.array(x, copy=j == i) for j, x in enumerate(inputs)]
            moved[i][at] += step
            sums.append(run(*moved).numpy().astype("float64").sum())
        made[at] = (sums[0] - sums[1]) / (2 * eps)
    return made
