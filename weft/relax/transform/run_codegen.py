"""RunCodegen: functions with ``Codegen`` are compiled by external code generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import ir
from weft.error import CodegenError
from weft.ffi import get_global_func
from weft.relax.core_ops import call_dps_packed
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.transform.attach_extern import EXTERNAL_MODULES
from weft.relax.transform.call_sites import used_as_values


def RunCodegen(
    target_options: Mapping[str, Any] | None = None, entry_functions: Sequence[str] | None = None
) -> ir.Pass:
    """Make the pass that compiles functions with ``Codegen`` and calls what came of them.

    A generator is the global function ``relax.ext.<Codegen>``: it takes the functions, its options and the names of
    their constants, and returns modules, which the build links with the program.

    Parameters
    ----------
    target_options : mapping of str to mapping, optional
        Options by generator.
    entry_functions : sequence of str, optional
        Functions whose calls are changed; by default all that are not compiled.
    """
    options = {k: dict(v) for k, v in (target_options or {}).items()}

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Compile, then change the calls."""
        compiled = {v: f for v, f in mod.items() if isinstance(f, ir.Function) and f.attrs.get("Codegen")}
        if not compiled:
            return mod
        names = {c: n for f in compiled.values() for n, c in _constants(f)}
        modules: list[Any] = []
        for generator in dict.fromkeys(f.attrs["Codegen"] for f in compiled.values()):
            own = [f for f in compiled.values() if f.attrs["Codegen"] == generator]
            modules += _generate(generator, own, options.get(generator, {}), names)
        symbols = {v.name_hint: f.attrs["global_symbol"] for v, f in compiled.items()}
        out = {v: _calling(f, mod, symbols, entry_functions, v) for v, f in mod.items()}
        kept = mod.with_functions(out)
        gone = symbols.keys() - used_as_values(kept)
        made = kept.with_functions({v: f for v, f in kept.items() if v.name_hint not in gone})
        made = made.with_attr(EXTERNAL_MODULES, (*mod.attrs.get(EXTERNAL_MODULES, ()), *modules))
        constants = {n: c.data for f in compiled.values() for n, c in _constants(f)}
        return made.with_attr("const_name_to_constant", constants) if constants else made

    return ir.Pass("RunCodegen", run, 0, RunCodegen.__doc__)


def _constants(func: ir.Function) -> list[tuple[str, ir.Constant]]:
    """Name the constants of a function in order."""
    prefix = f"{func.attrs['global_symbol']}_{func.attrs['Codegen']}_const_"
    found = [n for b in all_bindings(func) for n in ir.find(b.value, ir.Constant)]
    return [(f"{prefix}{i}", c) for i, c in enumerate(dict.fromkeys(found))]


def _generate(
    generator: str, functions: list[ir.Function], options: dict[str, Any], names: dict[ir.Constant, str]
) -> list[Any]:
    fn = get_global_func(f"relax.ext.{generator}", allow_missing=True)
    if fn is None:
        raise CodegenError(f"there is no code generator 'relax.ext.{generator}'", help="register_global_func makes one")
    constants = {c: names[c] for f in functions for _, c in _constants(f)}
    return list(fn(functions, options, constants))


def _calling(func: Any, mod: ir.IRModule, symbols: dict[str, str], entries: Any, gvar: ir.GlobalVar) -> Any:
    """Call what was compiled, in destination-passing style."""
    if not isinstance(func, ir.Function) or gvar.name_hint in symbols:
        return func
    if entries and gvar.name_hint not in entries:
        return func

    def rule(_binding: object, value: ir.Expr, _bb: object) -> ir.Expr | None:
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.GlobalVar):
            return None
        symbol = symbols.get(value.op.name_hint)
        if symbol is None:
            return None
        types = list(value.ty.fields) if isinstance(value.ty, ir.TupleType) else value.ty
        return call_dps_packed(ir.ExternFunc(symbol), list(value.args), types)

    return rewrite_bindings(func, mod, rule)
