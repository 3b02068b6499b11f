"""Emission of calls between the TIR functions of a module: raw pointers and numbers, with no entry point between."""

from weft import tir
from weft.ir import CallIntrin, DataType, GlobalVar, PrimExpr, walk
from weft.target.llvm.convert import convert
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.intrin import CALLS
from weft.target.llvm.packed import result_of
from weft.target.llvm.types import llvm_type
from weft.target.signature import callee_of, returns_value


def calls_functions(func: tir.PrimFunc) -> bool:
    """Whether a function calls another of its module."""
    return any(isinstance(n, CallIntrin) and isinstance(n.op, GlobalVar) for n in walk(func.body))


def _call_function(e: CallIntrin, s: FunctionEmitter) -> str:
    """Call the body of a function of the same module."""
    name, callee = e.op.name_hint, callee_of(e, s.module.siblings)
    args = []
    for p, a in zip(callee.params, e.args, strict=True):
        value = s.pointers[a] if a in s.pointers else s.expr(a)
        assert isinstance(a, PrimExpr)
        if DataType(p.dtype).code != "handle" and a.dtype != p.dtype:
            value = convert(s, value, DataType(a.dtype), DataType(p.dtype))
        args.append(f"{'ptr' if DataType(p.dtype).code == 'handle' else llvm_type(p.dtype)} {value}")
    result = ""
    if returns_value(callee.body):
        result = s.alloca("{ i32, i32, i64 }, align 8", "returned")
        s.emit(f"store {{ i32, i32, i64 }} zeroinitializer, ptr {result}")  # it may return nothing
        args.append(f"ptr {result}")
    s.check(s.effect(f"call i32 @{name}_impl({', '.join(args)})"))
    return result_of(s, result, DataType(e.dtype)) if result else "0"


CALLS[GlobalVar] = _call_function
