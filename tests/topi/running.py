"""Running a function of tensors as native code."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import te
from weft.target import Target, build
from weft.tir.schedule import default_schedule


def evaluate(fn: Any, *arrays: np.ndarray, target: Target | str | None = None) -> Any:
    """Run ``fn`` of placeholders for the arrays; a list of arrays where it gives several tensors.

    For a `target`, as the rules schedule it.
    """
    arrays = tuple(np.asarray(a, order="C") for a in arrays)
    tensors = [te.placeholder(a.shape, str(a.dtype), f"x{i}") for i, a in enumerate(arrays)]
    result = fn(*tensors)
    outs = list(result) if isinstance(result, (tuple, list)) else [result]
    func = te.create_prim_func([*tensors, *outs])
    kernel = build(func if target is None else default_schedule(func, Target.of(target)), target)["main"]
    found = [np.empty([int(d) for d in o.shape], str(o.dtype)) for o in outs]
    kernel(*arrays, *found)
    return found if isinstance(result, (tuple, list)) else found[0]


def check(fn: Any, arrays: Sequence[np.ndarray], expected: Any) -> None:
    """Assert that ``fn`` of placeholders gives the expected arrays, of their types and shapes."""
    found = evaluate(fn, *arrays)
    for f, e in zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]:
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        np.testing.assert_allclose(f, e, rtol=2e-5, atol=1e-5)
