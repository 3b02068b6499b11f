"""Small Relax programs that several test files build."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ir, op, relax, script, tir


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


def computed(name: str, *arrays: np.ndarray, **attrs: Any) -> np.ndarray:
    """Return what an operator's reference makes of arrays, in float64."""
    exact = [a.astype(np.float64) for a in arrays]
    call = op.make_call(name)(*map(relax.const, exact), **attrs)
    return op.get_op_def(name).reference(*exact, **dict(call.attrs.items))


def written(*text: str, more: str = "") -> ir.IRModule:
    """``main`` of a line of parameters and of bindings, a line each, in one dataflow block; `more` are other functions.

    Parameters such as ``x: (n, 4), i: (3) int64`` are tensors, of float32 unless it is said; sizes of other names are
    symbolic, and bindings may use them. What is bound last is returned, or what a last line ``return (a, b)`` says.
    """
    sizes: set[str] = set()

    def tensor(found: re.Match[str]) -> str:
        dims = [d.strip().strip('"') for d in found[1].split(",") if d.strip()]
        sizes.update(name for d in dims for name in re.findall(r"[a-z]\w*", d))
        shape = "".join(f"{d}, " if d.isdigit() else f'"{d}", ' for d in dims)
        return f'R.Tensor(({shape}), "{found[2] or "float32"}")'

    params, *lines, last = "\n".join(part.strip() for part in text).split("\n")
    params = re.sub(r"(?<=: )\(([^()]*)\)(?: (\w+))?", tensor, params)
    if not last.startswith("return "):
        lines, last = [*lines, last], "return " + last.split(" = ")[0]
    outputs = [name for name in re.findall(r"\w+", last) if any(line.startswith(f"{name} = ") for line in lines)]
    flow = "".join(f"            {line}\n" for line in (*lines, f"R.output({', '.join(dict.fromkeys(outputs))})"))
    declared = "".join(f"        {name} = T.int64()\n" for name in sorted(sizes))
    return script.from_source(
        f"@I.ir_module\nclass Module:\n{more}\n    @R.function\n    def main({params}):\n{declared}"
        f"        with R.dataflow():\n{flow}        {last}\n"
    )
