"""What public functions of relax take, by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import ir, runtime

Value = ir.Expr | ir.PrimExpr | np.ndarray | runtime.Tensor | str | float | Sequence["Value"]
"""What becomes an expression; a sequence becomes a tuple."""

Dims = ir.Expr | Sequence[ir.PrimExpr | int]
"""A shape: a value, or its dimensions."""

Types = ir.Type | tuple[ir.Type, ...] | list[Any] | None
"""A type, or several; None is none."""

Places = int | Sequence[int]
"""Which arguments, by number."""

VirtualDevice = ir.VDevice | runtime.Device | str
"""A virtual device, or a name such as ``cuda:1`` for one."""
