"""External compilers: a function with ``Compiler`` is handed to the generator of that name, and called by its symbol.

A generator is the global function ``relay.ext.<compiler>``, which takes a Relay function and returns a module of the
runtime, or one of Relax's, ``relax.ext.<compiler>``, which takes Relax functions. What it makes has a function of the
name ``global_symbol`` of the arguments' tensors, then of those of the results.
"""

from __future__ import annotations

from typing import Any

from weft import error, ir, runtime
from weft.ffi import as_opaque, get_global_func
from weft.relay.expr import Call, Function, Let, Tuple, TupleGetItem, Var, is_external
from weft.relay.op.registry import op_call
from weft.relay.to_relax import to_relax
from weft.relay.walk import rewrite

EXTERNAL_FUNCTIONS = "external_functions"


def compile_external(functions: list[Function]) -> list[runtime.Module]:
    """Have the functions of external compilers compiled.

    Raises
    ------
    CodegenError
        When there is no generator for a compiler.
    """
    return [m if isinstance(m, runtime.Module) else runtime.Module(m) for f in functions for m in _generated(f)]


def _generated(func: Function) -> list[Any]:
    compiler = str(func.attrs["Compiler"])
    generate = get_global_func(f"relay.ext.{compiler}", allow_missing=True)
    if generate is not None:
        return [generate(as_opaque(func))]
    generate = get_global_func(f"relax.ext.{compiler}", allow_missing=True)
    if generate is None:
        raise error.CodegenError(
            f"there is no code generator for the compiler '{compiler}'",
            where=func.span,
            expected=f"the global function relay.ext.{compiler} or relax.ext.{compiler}",
            help="register_global_func makes one; without PartitionGraph the program is compiled by Weft",
        )
    name = str(func.attrs["global_symbol"])
    made = to_relax(ir.IRModule({name: func.without_attr("Compiler").with_attr("Codegen", compiler)}))
    return list(generate([made[name]], {}, {}))


def external_functions(mod: ir.IRModule) -> list[Function]:
    """List the functions of external compilers that a module has, or had before :func:`CallExternal`."""
    own: list[Any] = [f for _, f in mod.items() if is_external(f)]
    return own + list(mod.attrs.get(EXTERNAL_FUNCTIONS, ()))


def with_externals(mod: runtime.Module | None, external: list[runtime.Module]) -> runtime.Module | None:
    """Return a module that brings others along."""
    first, *rest = [mod, *external] if mod is not None else external or [None]
    for other in rest:
        first.import_module(other)  # type: ignore[union-attr]
    return first


def CallExternal() -> ir.Pass:
    """Make the pass that calls functions of external compilers in destination-passing style (``vm.call_kernel``).

    It needs A-normal form with types. The functions leave the module; :func:`external_functions` finds them.
    """

    def lower(mod: ir.IRModule) -> ir.IRModule:
        """Change the calls and put the functions aside."""
        external = {v.name_hint: f for v, f in mod.items() if is_external(f)}
        if not external:
            return mod

        def rule(e: ir.Expr) -> Any:
            if type(e) is Let and type(e.value) is Call and getattr(e.value.op, "name_hint", None) in external:
                return _lowered(e)
            return e

        kept = {v: rewrite(f, rule) if type(f) is Function else f for v, f in mod.items() if not is_external(f)}
        return mod.with_functions(kept).with_attr(EXTERNAL_FUNCTIONS, tuple(external.values()))

    return ir.Pass("CallExternal", lower, 0, lower.__doc__)


def _lowered(let: Let) -> Let:
    """Call a kernel of the tensors that the arguments are made of."""
    call: Any = let.value
    fields: list[tuple[Var, Any]] = []
    args: list[Any] = []
    for a in call.args:
        if isinstance(a.ty, ir.TupleType):
            own = [(Var("field", t), TupleGetItem(a, i, ty=t)) for i, t in enumerate(a.ty.fields)]
            fields += own
            args += [v for v, _ in own]
        else:
            args.append(a)
    for t in call.ty.fields if isinstance(call.ty, ir.TupleType) else (call.ty,):
        if not isinstance(t, ir.TensorType) or any(ir.as_int(d) is None for d in t.shape or ()):
            raise error.LoweringError(
                "an external compiler fills tensors of constant shapes", where=call.span, found=str(t)
            )
    inputs = Tuple(tuple(args), ty=ir.TupleType(tuple(a.ty for a in args)))
    made = op_call("vm.call_kernel", call.op, inputs, ret_type=call.ty)
    made = Call(made.op, made.args, made.attrs, ty=call.ty, span=call.span)
    body: Any = Let(let.var, made, let.body, ty=let.ty, span=let.span)
    for v, value in reversed(fields):
        body = Let(v, value, body, ty=let.ty)
    return body
