"""Run one pass on one expression."""

from typing import Any

import numpy as np

from weft import ir, runtime
from weft.relay.expr import Function
from weft.relay.prelude import Prelude
from weft.relay.transform import InferType


def run_opt_pass(expr: ir.Expr, opt_pass: ir.Pass, import_prelude: bool = False) -> ir.Expr:
    """Run a pass on an expression in a module of its own.

    Parameters
    ----------
    expr : Expr
        The expression; where it is no function, the result is the body of the function that it becomes.
    opt_pass : Pass
        The pass.
    import_prelude : bool
        Whether the module has the standard definitions.
    """
    mod = ir.IRModule.from_expr(expr)
    if import_prelude:
        Prelude(mod)
    entry: Any = opt_pass(InferType()(mod))["main"]
    return entry if isinstance(expr, Function) else entry.body


def run_infer_type(expr: ir.Expr) -> ir.Expr:
    """Infer the types of an expression."""
    return run_opt_pass(expr, InferType())


def rand(dtype: str, *shape: int) -> Any:
    """Return a tensor of random numbers of 0..1."""
    return runtime.tensor(np.random.rand(*shape).astype(ir.numpy_dtype(dtype)))
