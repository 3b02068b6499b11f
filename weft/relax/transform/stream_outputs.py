"""StreamOutputs: results that leave the caches before anybody reads them are written past the caches."""

from math import prod
from typing import Any

from weft import machine, tir
from weft.ir import Call, Constant, DataType, Function, GlobalVar, IRModule, TensorType, Tuple, find, module_pass
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import is_op
from weft.relax.expr import Binding, SeqExpr, Var
from weft.relax.rename import variables
from weft.relax.rewriter import all_bindings, rewrite_bindings


@module_pass(opt_level=1)
def stream_outputs(mod: IRModule, *, after: int = machine.UNKNOWN.flushing_bytes) -> IRModule:
    """Let kernels write past the caches what is only returned, where a program reads many constants after that.

    A decoder returns a longer cache of keys and values from each of its layers. What it wrote would be read from memory
    before it is overwritten, and push out what later kernels read.

    Parameters
    ----------
    after : int
        Bytes of constants that calls read after the one that writes the result.

    Requires: ``relax.legalized``.
    Ensures: ``relax.legalized``. Such calls are of functions with the attribute ``tir.stream_outputs``, which says no
        more than that stores may bypass the caches.
    With ``after=16``, before::

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((4,), "float32"))
                b = R.call_tir(cls.exp, (R.const([1, 2, 3, 4], "float32"),), out_ty=R.Tensor((4,), "float32"))
                gv = (a, b)
                R.output(gv)
            return gv

        @T.prim_func
        def exp(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.exp(A[i])

    After::

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.call_tir(cls.exp_streamed, (x,), out_ty=R.Tensor((4,), "float32"))
                b = R.call_tir(cls.exp, (R.const([1, 2, 3, 4], "float32"),), out_ty=R.Tensor((4,), "float32"))
                gv: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")) = (a, b)
                R.output(gv)
            return gv

        @T.prim_func
        def exp(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.exp(A[i])

        @T.prim_func
        def exp_streamed(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            T.func_attr({"tir.stream_outputs": True})
            for i in range(4):
                B[i] = T.exp(A[i])
    Cost: Linear.
    Source: None.
    """
    called = {v for f in mod.functions.values() if isinstance(f, Function) for v in find(f, GlobalVar)}
    results = {g: _cold(f, mod, after) for g, f in mod.functions.items() if isinstance(f, Function) and g not in called}
    if not any(results.values()):
        return mod
    bb = BlockBuilder(mod)
    for gvar, cold in results.items():

        def rule(binding: Binding, value: Any, bb: BlockBuilder, cold: set[Var] = cold) -> Any:
            if binding.var not in cold:
                return None
            callee = value.args[0]
            streamed = bb.add_func(mod[callee].with_attr("tir.stream_outputs", True), f"{callee.name_hint}_streamed")
            args = (streamed, *value.args[1:])
            return Call(value.op, args, value.attrs, value.ty_args, span=value.span, ty=value.ty)

        bb.update_func(gvar, rewrite_bindings(mod[gvar], mod, rule, bb))  # type: ignore[arg-type]
    return bb.get()


def _cold(func: Function, mod: IRModule, after: int) -> set[Var]:
    """Find the results of kernels that are only returned, and that much later."""
    bindings = all_bindings(func)
    values = {b.var: b.value for b in bindings}
    result: Any = func.body.body if isinstance(func.body, SeqExpr) else func.body
    whole = values.get(result)
    fields = whole if isinstance(whole, Tuple) else result
    returned = set(variables(fields))
    read = {v for b in bindings if b.value is not fields for v in variables(b.value)}
    cold: set[Var] = set()
    following = 0
    for b in reversed(bindings):
        if following >= after and b.var in returned - read and is_op(b.value, "call_tir"):
            callee = mod.functions.get(b.value.args[0])
            plain = isinstance(callee, tir.PrimFunc) and "tir.stream_outputs" not in callee.attrs
            if plain and isinstance(b.value.ty, TensorType):
                cold.add(b.var)
        following += sum(_bytes(c) for c in find(b.value, Constant))
    return cold


def _bytes(constant: Constant) -> int:
    return prod(constant.data.shape) * DataType(str(constant.data.dtype)).itemsize
