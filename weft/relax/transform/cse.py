"""EliminateCommonSubexpr and DeadCodeElimination."""

from collections.abc import Sequence
from typing import Any

from weft import error, ir
from weft.relax.transform.common_subexpr import Eliminator
from weft.relax.unused import remove_all_unused
from weft.tir import PrimFunc


@ir.function_pass(kind=ir.Function, opt_level=1)
def eliminate_common_subexpr(func: ir.Function, mod: ir.IRModule, call_only: bool = False) -> ir.Function:
    """Compute equal pure operations once, within each dataflow block or sequence of bindings.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(x)
                c = R.add(a, b)
                R.output(c)
            return c

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                a: R.Tensor((2, 3), "float32") = R.exp(x)
                c: R.Tensor((2, 3), "float32") = R.add(a, a)
                R.output(c)
            return c

    Options:
        ``call_only``: leave elements of tuples alone.
    Cost: Linear.
    Source: TVM's ``EliminateCommonSubexpr``.
    """
    return Eliminator(func, mod, call_only, names=False).function(func)


@ir.module_pass(opt_level=1)
def dead_code_elimination(mod: ir.IRModule, entry_functions: Sequence[str] | None = None) -> ir.IRModule:
    """Drop bindings without effects whose variables nothing uses, and private functions that nothing mentions.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(x)
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                b: R.Tensor((2, 3), "float32") = R.sin(x)
                R.output(b)
            return b

    Options:
        ``entry_functions``: only these functions, and what they mention, stay.
    Cost: Linear: one walk backwards.
    Source: TVM's ``DeadCodeElimination``.
    """
    names = {v.name_hint for v in mod}
    unknown = [n for n in entry_functions or () if n not in names]
    if unknown:
        raise error.InvalidArgument(f"the module has no function '{unknown[0]}'", expected=", ".join(sorted(names)))
    functions: dict[str, Any] = {
        v.name_hint: remove_all_unused(f, mod) if isinstance(f, ir.Function) else f for v, f in mod.items()
    }
    roots = entry_functions
    if roots is None:
        unnamed = (ir.Function, PrimFunc)
        roots = [n for n, f in functions.items() if f.attrs.get("global_symbol") or not isinstance(f, unnamed)]

    def called(name: str) -> list[str]:
        return [n.name_hint for n in ir.find(functions[name], ir.GlobalVar) if n.name_hint in functions]

    alive = ir.reached(roots, called)
    return mod.with_functions({v: functions[v.name_hint] for v in mod if v.name_hint in alive})
