"""Calls of LAPACK's routines, which the host runs, for every importer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from weft import ir, relax
from weft.frontend import complex_arithmetic as numbers
from weft.frontend.complex_arithmetic import Arithmetic, Complex
from weft.runtime.host import HOST_FUNCTION


def call_lapack(
    b: Arithmetic,
    routine: str,
    operands: Sequence[Any],
    results: Sequence[tuple[Sequence[Any], str, bool]],
    batch: int,
    **options: str | int,
) -> list[Any]:
    """Call a routine, named as for real numbers, for each matrix of stacks with `batch` dimensions.

    Operands and results are float32, float64, int32 or complex; `results` has shapes, dtypes and whether they are
    complex. Options are the routine's letters and numbers by its names for them.
    """
    given = [numbers.joined(b.bb, x) if isinstance(x, Complex) else x for x in operands]
    attrs = {"routine": routine, "paired": [isinstance(x, Complex) for x in operands], "batch": batch, **options}
    about = {"op": "Lapack", "attrs": attrs, "in": [str(x.ty.dtype) for x in given], "out": [r[1] for r in results]}
    stored = [([*shape, 2] if is_complex else list(shape), dtype) for shape, dtype, is_complex in results]
    types = [ir.TensorType(None, dtype, len(shape)) for shape, dtype in stored]
    whole = types[0] if len(types) == 1 else ir.TupleType(tuple(types))
    found = b.emit(relax.call_pure_packed(HOST_FUNCTION, json.dumps(about), *given, ty_args=whole))
    fields = [found] if len(types) == 1 else b.fields(found)
    fields = [b.bb.match_cast(x, ir.tensor_type(*s)) for x, s in zip(fields, stored, strict=True)]
    return [numbers.split(b.bb, x) if r[2] else x for x, r in zip(fields, results, strict=True)]
