"""The code generator ``ccompiler``: groups of operators become C, which the system's compiler makes a library of.

It is the smallest that there is, and the example for others: a function of the name ``relax.ext.<generator>`` takes the
functions with ``Codegen``, options and the names of constants, and returns modules of the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import error, ffi, ir
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import DataflowBlock, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type
from weft.relax.rename import copy_with_new_vars, rename_vars
from weft.relax.transform.lower_ops import lower_ops
from weft.target import build


@ffi.register_global_func("relax.ext.ccompiler")
def compile_to_c(
    functions: Sequence[ir.Function],
    _options: Mapping[str, Any] | None = None,
    _constant_names: Mapping[Any, str] | None = None,
) -> list[Any]:
    """Compile functions to C, a module each."""
    return [build(kernel_of_function(f), "c") for f in functions]


def kernel_of_function(func: ir.Function) -> Any:
    """Lower a function of operators to one kernel, whose parameters are its own, then the result."""
    symbol = func.attrs["global_symbol"]
    flat = _flat(func)
    bb = BlockBuilder()
    group = bb.add_func(flat, symbol)
    params = [Var(p.name_hint, p.ty) for p in func.params]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(ir.Call(group, tuple(params)))
        bb.emit_func_output(out)
    lowered = lower_ops()(bb.get())
    main: Any = lowered["main"]
    call = main.body.blocks[0].bindings[-1].value
    kernel: Any = lowered[call.args[0]]
    order = [next((i for i, a in enumerate(call.args[1].fields) if a is p), None) for p in params]
    if None in order or len(order) != len(call.args[1].fields) or len(call.args) > 2:
        raise error.CodegenError(
            f"'{symbol}' cannot be one kernel of its parameters",
            where=func.span,
            help="pass constants as arguments (bind_constants=False), and sizes as constants",
        )
    new = (*(kernel.params[i] for i in order if i is not None), *kernel.params[len(order) :])
    return kernel.replace(params=new).with_attr("global_symbol", symbol)


def _flat(func: ir.Function) -> ir.Function:
    """Write the functions within a function out, as one group of operators."""
    bindings: list[Any] = []
    func = copy_with_new_vars(func)
    result = _inline(func, {}, bindings)
    if not isinstance(result, ir.ExprVar):
        raise error.CodegenError("a compiled group returns one tensor", where=func.span, found=str(func.ret_ty))
    body = SeqExpr((DataflowBlock(tuple(bindings)),), result, ty=result.ty)
    made = ir.Function(func.params, body, func.ret_ty, True, ir.Attrs.of({"Primitive": True}))
    return made.replace(ty=function_type(made))


def _inline(func: ir.Function, renamed: dict[Any, Any], out: list[Any]) -> Any:
    local: dict[Any, ir.Function] = {}
    seq: Any = func.body
    for b in (b for block in seq.blocks for b in block.bindings):
        value = rename_vars(b.value, renamed)
        if isinstance(value, ir.Function):
            local[b.var] = value
        elif isinstance(value, ir.Call) and value.op in local:
            inner = copy_with_new_vars(local[value.op])  # type: ignore[index]
            renamed[b.var] = _inline(inner, dict(zip(inner.params, value.args, strict=True)), out)
        elif isinstance(value, ir.Call):
            out.append(VarBinding(b.var, value, span=b.span))
        else:
            renamed[b.var] = value
    return rename_vars(seq.body, renamed)
