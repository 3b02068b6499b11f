"""FoldConstant: operators in dataflow blocks, and calls of kernels anywhere, are done now where all is constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import error, ir, runtime, target, tir
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import CORE_OPS, is_op
from weft.relax.infer import function_type, type_of
from weft.relax.rename import rename_vars
from weft.relax.rewriter import rewrite_bindings
from weft.relax.transform.fold_constant import constant_value, evaluate
from weft.relax.unused import remove_all_unused

_MOST_MADE = 1024  # elements of a tensor that is made of no other, which costs little at run time


def FoldConstant() -> ir.Pass:
    """Make the pass that computes what depends on constants alone, and removes what nothing needs then.

    Operators are folded in dataflow blocks, calls of kernels everywhere. A tensor that is made of no other, such as
    zeros, stays where it has more than 1024 elements.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Fold each function."""
        kernels = _Kernels(mod)
        changed = {v: _folded(f, mod, kernels) if isinstance(f, ir.Function) else f for v, f in mod.items()}
        return mod.with_functions(changed)

    return ir.Pass("FoldConstant", run, 2, FoldConstant.__doc__)


def _folded(func: ir.Function, mod: ir.IRModule, kernels: _Kernels) -> ir.Function:
    known: dict[ir.Expr, ir.Expr] = {}

    def rule(binding: Any, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        if isinstance(value, (ir.Constant, ir.ShapeExpr)):
            known[binding.var] = value
            return None
        if not isinstance(value, ir.Call):
            return None
        new: Any = rename_vars(value, known)
        if new is not binding.value:  # a shape that is known now says more of the result
            new = bb.normalize(ir.Call(new.op, new.args, new.attrs, new.ty_args, span=new.span), atom=False)
        result = _fold(new, bb, kernels) if _is_wanted(new) else None
        if isinstance(result, (ir.Constant, ir.ShapeExpr)):
            known[binding.var] = result
        return result if result is not None else None if new is binding.value else new

    new: Any = remove_all_unused(rewrite_bindings(func, mod, rule), mod)
    body: Any = func.body
    known_before = func.ret_ty is not None and ir.structural_equal(func.ret_ty, body.ty)
    if new is func or not known_before:
        return new
    new = new.replace(ret_ty=type_of(new.body.body))  # a shape that is known now
    return new.replace(ty=function_type(new))


def _is_wanted(call: ir.Call) -> bool:
    ty = call.ty
    if not isinstance(ty, ir.TensorType) or ty.shape is None:
        return True
    dims = [ir.as_int(d) for d in ty.shape]
    if any(d is None for d in dims) or np.prod([d or 0 for d in dims], dtype=np.float64) <= _MOST_MADE:
        return True
    return any(_has_tensor(a) for a in call.args)


def _has_tensor(arg: ir.Expr) -> bool:
    return any(map(_has_tensor, arg.fields)) if isinstance(arg, ir.Tuple) else isinstance(arg.ty, ir.TensorType)


def _fold(call: ir.Call, bb: BlockBuilder, kernels: _Kernels) -> ir.Expr | None:
    if is_op(call, "call_tir"):
        return kernels.evaluate(call, bb.module)
    if not isinstance(call.op, ir.Op) or not bb.in_dataflow:
        return None
    if is_op(call, "tensor_to_shape"):
        value = constant_value(call.args[0]) if isinstance(call.args[0], ir.Constant) else None
        return None if value is None else ir.shape_expr([int(v) for v in value])
    if is_op(call, "shape_to_tensor"):
        values = constant_value(call.args[0])
        return None if values is None else ir.constant(np.array(values, "int64"))
    if call.op.name.removeprefix("relax.") in CORE_OPS:
        return None
    custom = ir.op_attr(call.op.name, "FLegalize")
    if custom is None:
        return evaluate(call)
    before = len(bb.bindings())
    legal = bb.normalize(custom(bb, call), atom=False)
    bb.drop(before)
    return kernels.evaluate(legal, bb.module) if is_op(legal, "call_tir") else None


class _Kernels:
    """Kernels compiled for this machine, where they can be."""

    def __init__(self, mod: ir.IRModule) -> None:
        self.mod = mod
        self.built: dict[tir.PrimFunc, Any] = {}

    def evaluate(self, call: Any, mod: ir.IRModule) -> ir.Expr | None:
        """Run a kernel on constants."""
        kernel: Any = mod[call.args[0]] if call.args[0] in mod else None
        inputs = call.args[1].fields if isinstance(call.args[1], ir.Tuple) else None
        types: Any = call.ty.fields if isinstance(call.ty, ir.TupleType) else (call.ty,)
        if not isinstance(kernel, tir.PrimFunc) or inputs is None or len(call.args) > 2:
            return None
        shapes = [[ir.as_int(d) for d in t.shape] if getattr(t, "shape", None) is not None else [None] for t in types]
        if not all(isinstance(i, ir.Constant) for i in inputs) or any(None in s for s in shapes):
            return None
        function = self.compiled(kernel)
        if function is None:
            return None
        outs = [runtime.empty([d or 0 for d in s], t.dtype) for s, t in zip(shapes, types, strict=True)]
        function(*[i.data for i in inputs], *outs)
        made = tuple(ir.constant(o) for o in outs)
        return ir.Tuple(made, ty=call.ty) if isinstance(call.ty, ir.TupleType) else made[0]

    def compiled(self, kernel: tir.PrimFunc) -> Any:
        """Return a kernel as a function; None where this machine cannot run it."""
        if kernel not in self.built:
            try:
                module = target.build(kernel.with_attr("global_symbol", "folded"), "llvm")
                self.built[kernel] = module["folded"]
            except error.WeftError:  # such as a kernel scheduled for another device
                self.built[kernel] = None
        return self.built[kernel]
