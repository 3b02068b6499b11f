"""What public functions of relay take, by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import ir, runtime
from weft.relay.expr import TupleWrapper
from weft.target import TargetLike

Value = ir.Expr | TupleWrapper | np.ndarray | np.generic | runtime.Tensor | float | Sequence["Value"]
"""What becomes an expression: numbers and arrays become constants, a sequence a tuple."""

Dims = ir.Expr | Sequence[ir.Expr | ir.PrimExpr | int]
"""A shape, bounds or amounts: an expression, or a number for each dimension."""

Program = ir.IRModule | ir.Expr
"""A module, or an expression."""

TargetsLike = TargetLike | Sequence[TargetLike] | Mapping[Any, TargetLike] | None
"""What a program is compiled for: one target, several, or one a device; None is the current target."""
