"""Small Relax programs that several test files build."""

from collections.abc import Callable
from typing import Any

from weft import relax, tir


def model(make: Callable[..., Any], *inputs: Any, dtype: str = "float32") -> Any:
    """``main``, which returns what `make` makes of its parameters: tensors of these shapes, or variables.

    Sizes that are names are symbolic.
    """
    sizes: dict[str, tir.SizeVar] = {}

    def dim(d: Any) -> Any:
        return sizes.setdefault(d, tir.SizeVar(d, "int64")) if isinstance(d, str) else d

    params = [
        v if isinstance(v, relax.Var) else relax.Var(f"x{i}", relax.TensorType(tuple(dim(d) for d in v), dtype))
        for i, v in enumerate(inputs)
    ]
    bb = relax.BlockBuilder()
    with bb.function("main", params), bb.dataflow():
        bb.emit_func_output(bb.emit_output(make(*params)))
    return bb.get()
