"""Emission of calls between the TIR functions of a module: raw pointers and numbers, with no entry point between."""

from weft import error, tir
from weft.ir import CallIntrin, DataType, GlobalVar, PrimExpr, walk
from weft.target.llvm.convert import convert
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.entry import dimension_vars
from weft.target.llvm.intrin import CALLS
from weft.target.llvm.packed import result_of
from weft.target.llvm.types import llvm_type
from weft.target.signature import returns_value


def calls_functions(func: tir.PrimFunc) -> bool:
    """Whether a function calls another of its module."""
    return any(isinstance(n, CallIntrin) and isinstance(n.op, GlobalVar) for n in walk(func.body))


def _call_function(e: CallIntrin, s: FunctionEmitter) -> str:
    """Call the body of a function of the same module."""
    name = e.op.name_hint
    callee = s.module.siblings.get(name)
    if callee is None:
        raise error.CodegenError(
            f"there is no function '{name}' in the module", where=e.span, found=", ".join(s.module.siblings)
        )
    if dimension_vars(callee):
        raise error.CodegenError(
            f"'{name}' has symbolic dimensions, so a kernel cannot call it", where=e.span, help="make them parameters"
        )
    if len(e.args) != len(callee.params):
        raise error.CodegenError(f"'{name}' takes {len(callee.params)} arguments", where=e.span, found=str(len(e.args)))
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
        args.append(f"ptr {result}")
    s.check(s.effect(f"call i32 @{name}_impl({', '.join(args)})"))
    return result_of(s, result, DataType(e.dtype)) if result else "0"


CALLS[GlobalVar] = _call_function
