"""What functions are given: numbers and types of arguments, as far as they are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import arith, ir, tir
from weft.relax.core_ops import contradict

_CALL_TIR = ("relax.call_tir", "relax.call_tir_inplace")


def argument_errors(call: ir.Call, mod: ir.IRModule) -> Iterator[str]:
    """Say what is wrong with the arguments of a call of a function or closure, or of ``call_tir``."""
    op: Any = call.op
    if isinstance(op, ir.Op):
        if op.name in _CALL_TIR:
            yield from _call_tir_errors(call, mod)
        return
    func = mod[op] if isinstance(op, ir.GlobalVar) and op in mod else None
    if isinstance(func, ir.Function):
        names: list[str] = [p.name_hint for p in func.params]
        types: Any = [p.ty for p in func.params]
    elif (
        not isinstance(op, ir.GlobalVar)
        and isinstance(getattr(op, "ty", None), ir.FuncType)
        and op.ty.params is not None
    ):
        types = list(op.ty.params)
        names = [f"argument {i}" for i in range(len(types))]
    else:
        return
    name = getattr(op, "name_hint", "the function")
    if len(call.args) != len(types):
        yield f"'{name}' takes {len(types)} arguments ({', '.join(names)}), {len(call.args)} are given"
        return
    for hint, wanted, arg in zip(names, types, call.args, strict=True):
        found = getattr(arg, "ty", None)
        if contradict(found, wanted):
            yield f"'{name}' wants {wanted} for '{hint}', it is given {found}"


def _call_tir_errors(call: ir.Call, mod: ir.IRModule) -> Iterator[str]:
    target: Any = call.args[0] if call.args else None
    func: Any = mod[target] if isinstance(target, ir.GlobalVar) and target in mod else None
    args: Any = call.args[1] if len(call.args) > 1 else None
    if not isinstance(target, ir.GlobalVar) or func is None or not isinstance(args, ir.Tuple):
        return  # a packed function, or one that is missing, which is said elsewhere
    if not isinstance(func, tir.PrimFunc):
        yield f"call_tir calls the Relax function '{target.name_hint}'; call it directly"
        return
    outs = [t for ty in call.ty_args for t in (ty.fields if isinstance(ty, ir.TupleType) else (ty,))]
    extra: ir.Expr | None = call.args[2] if len(call.args) > 2 else None
    scalars = len(extra.values) if isinstance(extra, ir.ShapeExpr) else None if extra is not None else 0
    if call.op.name == _CALL_TIR[1]:  # type: ignore[attr-defined]
        outs = [t for t, i in zip(outs, call.attrs["inplace_indices"], strict=False) if i < 0]
    types = [getattr(a, "ty", None) for a in args.fields] + outs
    if scalars is not None and len(types) + scalars != len(func.params):
        names = ", ".join(p.name for p in func.params)
        parts = f"{len(args.fields)} inputs and {len(outs)} outputs" + (f" and {scalars} scalars" if scalars else "")
        yield f"'{target.name_hint}' takes {len(func.params)} arguments ({names}), call_tir gives {parts}"
        return
    yield from _kernel_errors(target.name_hint, func, types)


def _kernel_errors(name: str, func: tir.PrimFunc, types: list[Any]) -> Iterator[str]:
    """Say where operands and results differ from parameters, whose symbolic sizes the first that have them decide."""
    buffers, sizes = dict(func.buffer_map), dict[ir.Var, ir.PrimExpr]()
    analyzer = arith.Analyzer()
    for param, ty in zip(func.params, types, strict=False):
        buffer = buffers.get(param)
        if buffer is None and isinstance(ty, ir.PrimType) and ty.dtype != param.dtype:
            yield f"'{name}' wants a scalar {param.dtype} for '{param.name}', call_tir gives {ty}"
        if buffer is None or not isinstance(ty, ir.TensorType):
            continue
        for d, found in zip(buffer.shape, ty.shape or (), strict=False):
            if isinstance(d, ir.Var):
                sizes.setdefault(d, found)
        shape = [analyzer.simplify(ir.substitute(d, sizes)) for d in buffer.shape]
        wanted = ir.tensor_type([d.value if isinstance(d, ir.IntImm) else d for d in shape], buffer.dtype)
        if contradict(ty, wanted):
            yield f"'{name}' wants {wanted} for '{buffer.name}', call_tir gives {ty}"
