"""Small Relax programs that several test files build."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from tests.pairs import compiles
from weft import ir, op, relax, script, target, tir
from weft.relax.interpreter import evaluate
from weft.relax.pipeline import get_pipeline, graph_passes


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


def computing(
    mod: ir.IRModule, to: str | target.Target = "llvm", precision: str = "float32"
) -> Callable[..., np.ndarray]:
    """``main`` as a function of arrays: the machine's in one of eight tests (all of a sweep).

    In others it is what the operators mean that the passes leave which choose them: `tests/op`, `tests/topi` and
    `tests/tir` have their kernels.
    """
    if compiles(8):
        pipeline = get_pipeline("default", target.Target.of(to), precision)
        main = relax.VirtualMachine(relax.build(mod, to, relax_pipeline=pipeline), weft.cpu())["main"]
        return lambda *arrays: main(*map(weft.runtime.tensor, arrays)).numpy()
    chosen = itertools.takewhile(lambda step: step.name != "FuseOps", graph_passes(to, precision))
    made = ir.Sequential(list(chosen))(mod)
    return lambda *arrays: evaluate(made, *arrays)[0]


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
