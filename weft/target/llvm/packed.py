"""Emission of calls of packed functions by their global name, in the calling convention of tvm-ffi."""

from typing import Any

from weft.error import CodegenError
from weft.ir import CallIntrin, DataType, PrimExpr, StringImm, cast, int64
from weft.target.llvm.convert import convert
from weft.target.llvm.emitter import FunctionEmitter, ModuleEmitter
from weft.target.llvm.intrin import on
from weft.target.llvm.memory import pointer_of
from weft.target.llvm.support import raise_error
from weft.target.llvm.types import llvm_type
from weft.tir import Buffer

DTYPE_CODES = {
    "int": 0,
    "uint": 1,
    "float": 2,
    "bfloat": 4,
    "bool": 6,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
}
"""DLPack's code of each kind of data type."""

_ANY = "{ i32, i32, i64 }"
_INT, _BOOL, _FLOAT, _POINTER, _RAW_STRING, _TENSOR = 1, 2, 3, 4, 8, 70
_MANAGED_BYTES = 80  # of a DLManagedTensorVersioned, where pointers have 64 bits; else it has fewer
_FIRST_OBJECT = 64


@on("tvm_call_packed", "call_packed", "tvm_call_cpacked", "tvm_call_trace_packed")
def _call_packed(e: CallIntrin, s: FunctionEmitter) -> str:
    name = e.args[0]
    if not isinstance(name, StringImm):
        raise CodegenError("call_packed needs the name of a function", where=e.span, found=str(name))
    function = (_lookup_import if name.value in s.module.imported else _lookup)(s, name.value)
    count, views, kind, payload = len(e.args) - 1, [], 0, "0"
    args = s.alloca(f"[{count + 1} x {_ANY}], align 16", "args")
    for i, a in enumerate(e.args[1:]):
        kind, payload = _argument(s, a)
        _set(s, args, i, kind, payload)
        if kind == _TENSOR:
            views.append(s.value(f"inttoptr i64 {payload} to ptr"))
    _set(s, args, count, 0, "0")  # the last one takes the result
    result = s.value(f"getelementptr inbounds {_ANY}, ptr {args}, i64 {count}")
    s.module.declare("TVMFFIFunctionCall", "declare extern_weak i32 @TVMFFIFunctionCall(ptr, ptr, i32, ptr)")
    s.module.declare("TVMFFIObjectDecRef", "declare extern_weak i32 @TVMFFIObjectDecRef(ptr)")
    code = s.effect(f"call i32 @TVMFFIFunctionCall(ptr {function}, ptr {args}, i32 {count}, ptr {result})")
    for view in views:
        s.emit(f"call i32 @TVMFFIObjectDecRef(ptr {view})")
    s.check(code)
    if e.op.name == "tir.tvm_call_trace_packed":  # the last argument is the value where the function returns nothing
        none = s.value(f"icmp eq i32 {s.effect(f'load i32, ptr {result}')}, 0")
        bits = s.value(f"getelementptr inbounds {_ANY}, ptr {result}, i64 0, i32 2")
        for t, field, own in (("i64", bits, payload), ("i32", result, str(kind))):
            given = s.effect(f"load {t}, ptr {field}")
            s.emit(f"store {t} {s.value(f'select i1 {none}, {t} {own}, {t} {given}')}, ptr {field}")
    return result_of(s, result, DataType(e.dtype))


@on("ret")
def _return(e: CallIntrin, s: FunctionEmitter) -> str:
    """Put a value where the caller finds the result, and leave the function."""
    if not s.result:
        raise CodegenError(
            "a value cannot be returned from here", where=e.span, help="return it outside of parallel loops"
        )
    kind, payload = _argument(s, e.args[0])
    if kind == _TENSOR:
        raise CodegenError("a kernel returns tensors through its output buffers", where=e.span)
    _set(s, s.result, 0, kind, payload)
    s.leave("0")
    s.start(s.label("behind"))
    return "0"


def _set(s: FunctionEmitter, args: str, i: int, kind: int, payload: str) -> None:
    for field, t, v in ((0, "i32", str(kind)), (1, "i32", "0"), (2, "i64", payload)):
        s.emit(f"store {t} {v}, ptr {s.value(f'getelementptr inbounds {_ANY}, ptr {args}, i64 {i}, i32 {field}')}")


def _lookup(s: FunctionEmitter, name: str) -> str:
    """Return the handle of a global function, looked up at the first call and kept."""
    module = s.module
    module.declare("TVMFFIFunctionGetGlobal", "declare extern_weak i32 @TVMFFIFunctionGetGlobal(ptr, ptr)")
    text = module.string(name)
    message = module.string(f"there is no global function '{name}'; register it before the kernel runs")
    text_type = f"{{ ptr, {module.size_type} }}"  # TVMFFIByteArray
    symbol = "weft.packed." + "".join(c if c.isalnum() else f".{ord(c):x}." for c in name)
    missing = raise_error(module, module.string("ValueError"), message)
    module.support(
        symbol,
        lambda: (
            f"""@{symbol}.handle = internal global ptr null
define internal ptr @{symbol}() #0 {{
  %known = load atomic ptr, ptr @{symbol}.handle acquire, align 8
  %has = icmp ne ptr %known, null
  br i1 %has, label %done, label %find
done:
  ret ptr %known
find:
  %key = alloca {text_type}, align 8
  %found = alloca ptr, align 8
  store ptr null, ptr %found
  store ptr {text}, ptr %key
  %size = getelementptr inbounds {text_type}, ptr %key, i64 0, i32 1
  store {module.size_type} {len(name.encode())}, ptr %size
  %rc = call i32 @TVMFFIFunctionGetGlobal(ptr %key, ptr %found)
  %handle = load ptr, ptr %found
  %there = icmp ne ptr %handle, null
  br i1 %there, label %keep, label %fail
keep:
  store atomic ptr %handle, ptr @{symbol}.handle release, align 8
  ret ptr %handle
fail:
  %set = {missing}
  ret ptr null
}}"""
        ),
    )
    handle = s.effect(f"call ptr @{symbol}()")
    s.check(s.value(f"sext i1 {s.value(f'icmp eq ptr {handle}, null')} to i32"))
    return handle


def _lookup_import(s: FunctionEmitter, name: str) -> str:
    """Return the handle of a function of the modules that this one imports, which own it."""
    module = s.module
    context = "@__tvm_ffi__library_ctx = weak global ptr null"  # the loader puts the module there
    if context not in module.globals:
        module.globals.append(context)
    module.declare(
        "TVMFFIEnvModLookupFromImports", "declare extern_weak i32 @TVMFFIEnvModLookupFromImports(ptr, ptr, ptr)"
    )
    found = s.alloca("ptr, align 8", "found")
    s.emit(f"store ptr null, ptr {found}")
    own = s.effect("load ptr, ptr @__tvm_ffi__library_ctx")
    text = module.string(name)
    s.check(s.effect(f"call i32 @TVMFFIEnvModLookupFromImports(ptr {own}, ptr {text}, ptr {found})"))
    return s.effect(f"load ptr, ptr {found}")


def _argument(s: FunctionEmitter, a: Any) -> tuple[int, str]:
    """Return (type index, payload as i64)."""
    if isinstance(a, Buffer):
        return _TENSOR, s.value(f"ptrtoint ptr {_tensor(s, a)} to i64")
    if isinstance(a, StringImm):
        return _RAW_STRING, s.value(f"ptrtoint ptr {s.module.string(a.value)} to i64")
    if not isinstance(a, PrimExpr):
        raise CodegenError("a packed function takes buffers, numbers and strings", found=type(a).__name__)
    dt, value = DataType(a.dtype), s.expr(a)
    if dt.code == "handle":
        return _POINTER, s.value(f"ptrtoint ptr {value} to i64")
    if dt.is_float:
        return _FLOAT, s.value(f"bitcast double {convert(s, value, dt, DataType('float64'))} to i64")
    return _BOOL if dt.code == "bool" else _INT, convert(s, value, dt, DataType("int64"))


def _tensor(s: FunctionEmitter, buffer: Buffer) -> str:
    """Make a tensor object that views a buffer, and return it; the callee must not keep it beyond the kernel's call."""
    rank, dt = len(buffer.shape), DataType(buffer.dtype)
    dims = s.alloca(f"[{2 * max(rank, 1)} x i64], align 8", "dims")
    strides: list[PrimExpr] = [cast("int64", x) for x in buffer.strides]
    if not strides:
        step: PrimExpr = int64(1)
        for d in reversed(buffer.shape):
            strides.insert(0, step)
            step = step * cast("int64", d)
    for i, v in enumerate([*(cast("int64", d) for d in buffer.shape), *strides]):
        s.emit(f"store i64 {s.expr(v)}, ptr {s.value(f'getelementptr inbounds i64, ptr {dims}, i64 {i}')}")
    offset = "0" if buffer.elem_offset is None else s.expr(cast("int64", buffer.elem_offset) * int64(dt.itemsize))
    packed = DTYPE_CODES[dt.code] | dt.bits << 8 | dt.lanes << 16
    _declare_view(s.module)
    view = s.effect(
        f"call ptr @weft.tensor_view(ptr {pointer_of(s, buffer)}, ptr {dims}, i32 {rank}, i32 {packed}, i64 {offset})"
    )
    s.check(s.value(f"sext i1 {s.value(f'icmp eq ptr {view}, null')} to i32"))
    return view


def _declare_view(module: ModuleEmitter) -> None:
    """Define ``weft.tensor_view``: one block of memory holds a DLManagedTensorVersioned, its shape and its strides."""
    module.declare(
        "TVMFFITensorFromDLPackVersioned",
        "declare extern_weak i32 @TVMFFITensorFromDLPackVersioned(ptr, i32, i32, ptr)",
    )
    size = module.size_type
    module.declare("malloc", f"declare ptr @malloc({size})")
    module.declare("free", "declare void @free(ptr)")
    module.declare("llvm.memcpy.p0.p0.i64", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    managed = "{ i32, i32, ptr, ptr, i64, ptr, i32, i32, i32, i32, ptr, ptr, i64 }"
    fields = (
        ("i32", "1"),
        ("i32", "0"),
        ("ptr", "null"),
        ("ptr", "@free"),
        ("i64", "0"),
        ("ptr", "%data"),
        ("i32", "1"),
        ("i32", "0"),
        ("i32", "%rank"),
        ("i32", "%dtype"),
        ("ptr", "%shape"),
        ("ptr", "%strides"),
        ("i64", "%offset"),
    )
    stores = "\n".join(
        f"  %f{i} = getelementptr inbounds {managed}, ptr %m, i64 0, i32 {i}\n  store {t} {v}, ptr %f{i}"
        for i, (t, v) in enumerate(fields)
    )
    module.support(
        "weft.tensor_view",
        lambda: (
            f"""define internal ptr @weft.tensor_view(
    ptr %data, ptr %dims, i32 %rank, i32 %dtype, i64 %offset) #0 {{
  %out = alloca ptr, align 8
  store ptr null, ptr %out
  %wide = zext i32 %rank to i64
  %bytes = mul i64 %wide, 16
  %size = add i64 %bytes, {_MANAGED_BYTES}
  {"%narrow = trunc i64 %size to i32" if size == "i32" else ""}
  %m = call ptr @malloc({size} {"%narrow" if size == "i32" else "%size"})
  %none = icmp eq ptr %m, null
  br i1 %none, label %done, label %fill
fill:
  %shape = getelementptr inbounds i8, ptr %m, i64 {_MANAGED_BYTES}
  %strides = getelementptr inbounds i64, ptr %shape, i64 %wide
  call void @llvm.memcpy.p0.p0.i64(ptr %shape, ptr %dims, i64 %bytes, i1 false)
{stores}
  %rc = call i32 @TVMFFITensorFromDLPackVersioned(ptr %m, i32 0, i32 0, ptr %out)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %drop, label %done
drop:
  call void @free(ptr %m)
  br label %done
done:
  %view = load ptr, ptr %out
  ret ptr %view
}}"""
        ),
    )


def result_of(s: FunctionEmitter, result: str, dt: DataType) -> str:
    """Read the result as a number of type `dt`, and give an object back."""
    s.module.declare("TVMFFIObjectDecRef", "declare extern_weak i32 @TVMFFIObjectDecRef(ptr)")
    kind = s.effect(f"load i32, ptr {result}")
    bits = s.effect(f"load i64, ptr {s.value(f'getelementptr inbounds {_ANY}, ptr {result}, i64 0, i32 2')}")
    drop, go = s.label("drop"), s.label("ok")
    s.branch(s.value(f"icmp sge i32 {kind}, {_FIRST_OBJECT}"), drop, go, "")
    s.start(drop)
    s.emit(f"call i32 @TVMFFIObjectDecRef(ptr {s.effect(f'inttoptr i64 {bits} to ptr')})")
    s.jump(go)
    s.start(go)
    if dt.code == "void":
        return "0"
    if dt.is_float:
        is_float = s.value(f"icmp eq i32 {kind}, {_FLOAT}")
        number = s.value(
            f"select i1 {is_float}, double {s.value(f'bitcast i64 {bits} to double')}, "
            f"double {s.value(f'sitofp i64 {bits} to double')}"
        )
        return convert(s, number, DataType("float64"), dt)
    if dt.code == "handle":
        return s.value(f"inttoptr i64 {bits} to {llvm_type(dt)}")
    return convert(s, bits, DataType("int64"), dt)
