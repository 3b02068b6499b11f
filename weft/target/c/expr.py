"""Expressions of host functions as C, beside what all languages like C share."""

from weft import ir, tir
from weft.error import CodegenError
from weft.target import clike
from weft.target.c.emitter import HostEmitter
from weft.target.signature import callee_of, returns_value

EXPR = ir.Dispatch("C expression", (ir.PrimExpr,), default=clike.EXPR.default, extends=clike.EXPR)


@EXPR.on(ir.Let)
def _let(e: ir.Let, s: HostEmitter) -> str:
    value = s.expr(e.value)
    return f"({{ {s.type_of(e.var.dtype, e)} {s.fresh(e.var)} = {value}; {s.expr(e.body)}; }})"


_MEMBERS = {
    1: "data",
    2: "shape",
    3: "strides",
    4: "ndim",
    5: "dtype.code",
    6: "dtype.bits",
    7: "dtype.lanes",
    8: "byte_offset",
    9: "device.id",
    10: "device.type",
}
"""Fields of DLTensor, as Apache TVM numbers them for ``tvm_struct_get``."""


def _field(e: ir.CallIntrin, s: HostEmitter) -> str:
    """A field of a tensor or a packed value, or an element of an array."""
    of, field, args = s.type_of(e.dtype, e), ir.as_int(e.args[2]), [s.expr(a) for a in e.args[:2]]
    if field in _MEMBERS:
        return f"(({of})((DLTensor*){args[0]})[{args[1]}].{_MEMBERS[field]})"
    if field == 13:
        return f"((({of})((TVMFFIAny*){args[0]})[{args[1]}].type_index))"
    if field == 15:
        kind = "v_ptr" if e.dtype == "handle" else "v_float64" if e.dtype == "float64" else "v_int64"
        return f"(({of})((TVMFFIAny*){args[0]})[{args[1]}].{kind})"
    if field == 17:
        return f"((({of}*){args[0]})[{args[1]}])"
    known = ", ".join(map(str, (*_MEMBERS, 13, 15, 17)))
    raise CodegenError(
        "tvm_struct_get of a field that target c does not know",
        where=e.span,
        expected=f"one of {known}",
        found=str(e.args[2]),
    )


def _any(a: ir.Node, s: HostEmitter) -> str:
    """The initializer of a packed value."""
    if isinstance(a, ir.StringImm):
        return f"{{ .type_index = 8, .v_ptr = (void*){clike.string(a.value)} }}"
    if not isinstance(a, ir.PrimExpr):
        raise CodegenError("target c passes no tensors to packed functions", where=a.span, help="use target 'llvm'")
    dt = ir.DataType(a.dtype)
    index, field = (3, "v_float64") if dt.is_float else (4, "v_ptr") if dt.code == "handle" else (1, "v_int64")
    return f"{{ .type_index = {2 if dt.code == 'bool' else index}, .{field} = {s.expr(a)} }}"


def _return(e: ir.CallIntrin, s: HostEmitter) -> str:
    """Put a value where the caller finds the result, and leave the function."""
    return f"({{ *{s.result} = (TVMFFIAny){_any(e.args[0], s)}; {s.freed()}return 0; 0; }})"


def _subroutine(e: ir.CallIntrin, s: HostEmitter) -> str:
    """A call of the body of another function of the module."""
    name, callee = e.op.name_hint, callee_of(e, s.siblings)
    args, returns = [s.expr(a) for a in e.args], returns_value(callee.body)
    call = f"{name}_impl({', '.join([*args, '&r'] if returns else args)})"
    value = f"({s.type_of(e.dtype, e)}){_value('r', e.dtype)}" if returns and e.dtype != "void" else "(void)0"
    return f"({{ TVMFFIAny r = {{0}}; int code = {call}; if (code) {{ {s.freed()}return code; }} {value}; }})"


def _value(any: str, dtype: str) -> str:
    """Read a packed value as a number or pointer."""
    if ir.DataType(dtype).is_float:
        return f"({any}.type_index == 3 ? {any}.v_float64 : (double){any}.v_int64)"
    return f"{any}.{'v_ptr' if dtype == 'handle' else 'v_int64'}"


def _packed(e: ir.CallIntrin, s: HostEmitter) -> str:
    """A call of a packed function by name; its arguments are numbers, strings and pointers."""
    name, fields = e.args[0], [_any(a, s) for a in e.args[1:]]
    if not isinstance(name, ir.StringImm):
        raise CodegenError("call_packed needs the name of a function", where=e.span, found=str(name))
    n, known = len(fields), "NULL" if name.value in s.imported else "&known"
    value = "(void)0" if e.dtype == "void" else f"({s.type_of(e.dtype, e)}){_value(f'a[{n}]', e.dtype)}"
    return (
        f"({{ static void* known; TVMFFIAny a[] = {{ {', '.join([*fields, '{0}'])} }}; "
        f"if (weft_call({clike.string(name.value)}, {known}, a, {n})) {{ {s.freed()}return -1; }} {value}; }})"
    )


def _address(e: ir.CallIntrin, s: HostEmitter) -> str:
    if not isinstance(e.args[0], tir.BufferLoad):
        raise s.refuse(e)
    return f"((void*)&{s.element(e.args[0].buffer, e.args[0].indices)})"


def _reinterpret(e: ir.CallIntrin, s: HostEmitter) -> str:
    source, result = (s.type_of(x.dtype, e) for x in (e.args[0], e))
    return f"((union {{ {source} from; {result} to; }}){{ .from = {s.expr(e.args[0])} }}).to"


SPECIAL = {
    "ret": _return,
    clike.SUBROUTINE: _subroutine,
    "address_of": _address,
    "tvm_struct_get": _field,
    "reinterpret": _reinterpret,
    **dict.fromkeys(("tvm_call_packed", "call_packed", "tvm_call_cpacked"), _packed),
}
