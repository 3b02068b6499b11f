"""Emission of what functions in packed form read by themselves: fields of packed values and tensors."""

from weft import error, ir
from weft.target.llvm.emitter import FunctionEmitter
from weft.target.llvm.intrin import on
from weft.target.llvm.types import TENSOR, llvm_type

_VALUE = "{ i32, i32, i64 }"  # TVMFFIAny
# Field, as Apache TVM numbers it, to the structure and its member; None: an element of an array.
_FIELDS: dict[int, tuple[str, int] | None] = {
    1: (TENSOR, 0),
    2: (TENSOR, 7),
    3: (TENSOR, 8),
    4: (TENSOR, 3),
    5: (TENSOR, 4),
    6: (TENSOR, 5),
    7: (TENSOR, 6),
    8: (TENSOR, 9),
    9: (TENSOR, 2),
    10: (TENSOR, 1),
    13: (_VALUE, 0),
    14: (_VALUE, 1),
    15: (_VALUE, 2),
    17: None,
}


def _address(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    field = ir.as_int(e.args[2])
    if field not in _FIELDS:
        raise error.CodegenError(
            "tvm_struct_get of a field that target llvm does not know",
            where=e.span,
            expected=f"one of {', '.join(map(str, _FIELDS))}",
            found=str(e.args[2]),
        )
    base, index, member = s.expr(e.args[0]), s.expr(e.args[1]), _FIELDS[field]
    kind = llvm_type(e.args[1].dtype)
    if member is None:
        return s.value(f"getelementptr {llvm_type(e.dtype)}, ptr {base}, {kind} {index}")
    return s.value(f"getelementptr {member[0]}, ptr {base}, {kind} {index}, i32 {member[1]}")


@on("tvm_struct_get")
def _get(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    return s.effect(f"load {llvm_type(e.dtype)}, ptr {_address(e, s)}")


@on("isnullptr")
def _is_null(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    return s.value(f"icmp eq ptr {s.expr(e.args[0])}, null")


@on("handle_add_byte_offset")
def _add_offset(e: ir.CallIntrin, s: FunctionEmitter) -> str:
    return s.value(f"getelementptr i8, ptr {s.expr(e.args[0])}, {llvm_type(e.args[1].dtype)} {s.expr(e.args[1])}")
