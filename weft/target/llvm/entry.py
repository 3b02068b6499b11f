"""Emission of a function and of its entry point in the safe-call convention of tvm-ffi.

``int32_t __tvm_ffi_<name>(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret)`` checks every argument, binds symbolic
dimensions, and calls ``<name>_impl`` with raw pointers. A failed check sets the raised error and returns -1.
"""

from __future__ import annotations

from typing import Any

from weft.error import CodegenError
from weft.ir import DataType, IntImm, PrimExpr, Var, walk
from weft.target.llvm.emitter import FunctionEmitter, ModuleEmitter
from weft.target.llvm.stmt import STMT, finish
from weft.target.llvm.types import llvm_type
from weft.tir import Buffer, PrimFunc

__all__ = ["emit_function"]

_CODES = {
    "int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
}  # fmt: skip
_WRONG_COUNT, _NOT_TENSOR, _DTYPE, _NDIM, _SHAPE, _STRIDES, _DEVICE, _ALIGN, _NOT_INT, _NOT_FLOAT, _SYMBOLIC = range(11)
_ANY = "{ i32, i32, i64 }"
_COLD = ", !prof !0"


def emit_function(module: ModuleEmitter, func: PrimFunc) -> None:
    """Emit the body and the entry point of a lowered function."""
    name = func.attrs.get("global_symbol")
    if not name:
        raise CodegenError("a function without 'global_symbol' has no entry point", where=func.span)
    dims = _dimension_vars(func)
    buffers = dict((id(p), b) for p, b in func.buffer_map)
    impl = FunctionEmitter(module, f"{name}_impl")
    impl.noalias = bool(func.attrs.get("tir.noalias", False))
    params = []
    for i, p in enumerate(func.params):
        buffer = buffers.get(id(p))
        if buffer is not None:
            params.append(f"ptr {'noalias ' if impl.noalias else ''}%a{i}")
            impl.pointers[id(buffer.data)] = f"%a{i}"
        else:
            params.append(f"{llvm_type(p.dtype)} %a{i}")
            (impl.pointers if p.dtype == "handle" else impl.env)[id(p)] = f"%a{i}"
    for j, v in enumerate(dims):
        params.append(f"{llvm_type(v.dtype)} %d{j}")
        impl.env[id(v)] = f"%d{j}"
        impl.analyzer.mark_global_non_neg(v)
    STMT(func.body, impl)
    impl.emit("ret i32 0")
    module.functions.append(finish(impl, f"define internal i32 @{name}_impl({', '.join(params)}) noinline #0"))
    _Entry(module, func, name, buffers, dims).emit()


def _dimension_vars(func: PrimFunc) -> list[Var]:
    """List the variables in the shapes of parameter buffers that are no parameters themselves."""
    params = {id(p) for p in func.params}
    found: dict[int, Var] = {}
    for _, buffer in func.buffer_map:
        for e in (*buffer.shape, *buffer.strides):
            for v in walk(e):
                if isinstance(v, Var) and id(v) not in params:
                    found[id(v)] = v
    return list(found.values())


def _signature(func: PrimFunc, name: str, buffers: dict[int, Buffer]) -> str:
    """The function as error messages show it: ``add(a: Tensor[[n, 4], float32])``."""
    parts = []
    for p in func.params:
        b = buffers.get(id(p))
        if b is not None:
            shape = ", ".join(
                d.name if isinstance(d, Var) else str(d.value) if isinstance(d, IntImm) else "..." for d in b.shape
            )
            parts.append(f"{b.name}: Tensor[[{shape}], {b.dtype}]")
        else:
            parts.append(f"{p.name}: {p.dtype}")
    return f"{name}({', '.join(parts)})"


class _Entry:
    """Emission of one entry point."""

    def __init__(
        self, module: ModuleEmitter, func: PrimFunc, name: str, buffers: dict[int, Buffer], dims: list[Var]
    ) -> None:
        self.module, self.func, self.name, self.buffers, self.dims = module, func, name, buffers, dims
        self.s = FunctionEmitter(module, f"__tvm_ffi_{name}")
        self.failures: list[str] = []
        self.late: list[tuple[int, int, PrimExpr, str]] = []
        self.signature = module.string(_signature(func, name, buffers))

    def emit(self) -> None:
        """Emit checks in the order of the arguments, then the call."""
        s = self.s
        n = len(self.func.params)
        self.require(s.value(f"icmp eq i32 %num_args, {n}"), n, _WRONG_COUNT, -1, str(n))
        args: list[str] = []
        for i, p in enumerate(self.func.params):
            buffer = self.buffers.get(id(p))
            args.append(self.tensor(i, buffer) if buffer is not None else self.scalar(i, p))
        for i, d, expr, found in self.late:
            expected = self.as_int64(expr)
            self.require(s.value(f"icmp eq i64 {found}, {expected}"), i, _SHAPE, d, expected)
        for v in self.dims:
            if id(v) not in s.env:
                raise CodegenError(
                    f"'{self.name}': no argument determines the dimension '{v.name}'", help="make it a parameter"
                )
            args.append(f"{llvm_type(v.dtype)} {s.env[id(v)]}")
        code = s.value(f"call i32 @{self.name}_impl({', '.join(args)})")
        failed = s.value(f"icmp eq i32 {code}, -2")
        s.branch(failed, "nomem", "out")
        s.start("nomem")
        self.module.declare("weft_set_error", "declare i32 @weft_set_error(ptr, ptr)")
        text = self.module.string(f"{self.name}: out of memory for a workspace")
        kind = self.module.string("MemoryError")
        s.emit("ret i32 " + s.value(f"call i32 @weft_set_error(ptr {kind}, ptr {text})"))
        s.start("out")
        s.emit(f"ret i32 {code}")
        s.lines.extend(self.failures)
        header = f"define i32 @__tvm_ffi_{self.name}(ptr %self, ptr %args, i32 %num_args, ptr %ret) #0"
        self.module.functions.append(finish(s, header))

    def require(self, ok: str, arg: int, code: int, dim: int, expected: str) -> None:
        """Go on if `ok`, else fail with a code that the runtime turns into a message."""
        s = self.s
        good, bad = s.label("ok"), s.label("bad")
        s.branch(ok, good, bad, _COLD)
        self.module.declare("weft_arg_error", "declare i32 @weft_arg_error(ptr, i32, i32, i64, i64, ptr, i32) #1")
        result = s.fresh("rc")
        call = f"call i32 @weft_arg_error(ptr {self.signature}, i32 {arg}, i32 {code}, i64 {dim}, i64 {expected}, ptr %args, i32 %num_args)"
        self.failures += [f"{bad}:", f"  {result} = {call}", f"  ret i32 {result}"]
        s.start(good)

    def field(self, i: int, index: int, t: str) -> str:
        """Load a field of argument `i`."""
        pointer = self.s.value(f"getelementptr inbounds {_ANY}, ptr %args, i64 {i}, i32 {index}")
        return self.s.value(f"load {t}, ptr {pointer}")

    def at(self, pointer: str, offset: int, t: str) -> str:
        """Load from a byte offset."""
        return self.s.value(f"load {t}, ptr {self.s.value(f'getelementptr inbounds i8, ptr {pointer}, i64 {offset}')}")

    def as_int64(self, expr: PrimExpr) -> str:
        """Emit an integer expression as i64."""
        text = self.s.expr(expr)
        return text if expr.dtype == "int64" else self.s.value(f"sext {llvm_type(expr.dtype)} {text} to i64")

    def tensor(self, i: int, buffer: Buffer) -> str:
        """Check a tensor argument; return its data pointer as an argument of the body."""
        s = self.s
        kind = self.field(i, 0, "i32")
        is_object, is_pointer = s.value(f"icmp eq i32 {kind}, 70"), s.value(f"icmp eq i32 {kind}, 7")
        self.require(s.value(f"or i1 {is_object}, {is_pointer}"), i, _NOT_TENSOR, -1, "0")
        value = self.field(i, 2, "ptr")
        tensor = s.value(
            f"select i1 {is_object}, ptr {s.value(f'getelementptr inbounds i8, ptr {value}, i64 24')}, ptr {value}"
        )
        dt = DataType(buffer.dtype)
        packed = _CODES[dt.code] | dt.bits << 8 | dt.lanes << 16
        self.require(
            s.value(f"icmp eq i32 {self.at(tensor, 16, 'i32')}, {len(buffer.shape)}"),
            i,
            _NDIM,
            -1,
            str(len(buffer.shape)),
        )
        self.require(s.value(f"icmp eq i32 {self.at(tensor, 20, 'i32')}, {packed}"), i, _DTYPE, -1, str(packed))
        self.require(s.value(f"icmp eq i32 {self.at(tensor, 8, 'i32')}, 1"), i, _DEVICE, -1, "1")
        extents = self.shape(i, buffer, self.at(tensor, 24, "ptr"))
        self.strides(i, buffer, tensor, extents)
        data, offset = self.at(tensor, 0, "ptr"), self.at(tensor, 40, "i64")
        return f"ptr {s.value(f'getelementptr inbounds i8, ptr {data}, i64 {offset}')}"

    def shape(self, i: int, buffer: Buffer, shape: str) -> list[str]:
        """Check or bind each dimension; return the extents found."""
        s = self.s
        extents = []
        for d, dim in enumerate(buffer.shape):
            found = self.at(shape, 8 * d, "i64")
            extents.append(found)
            if isinstance(dim, IntImm):
                self.require(s.value(f"icmp eq i64 {found}, {dim.value}"), i, _SHAPE, d, str(dim.value))
            elif isinstance(dim, Var) and id(dim) not in s.env:
                s.env[id(dim)] = (
                    found if dim.dtype == "int64" else s.value(f"trunc i64 {found} to {llvm_type(dim.dtype)}")
                )
            elif isinstance(dim, Var):
                expected = self.as_int64(dim)
                self.require(s.value(f"icmp eq i64 {found}, {expected}"), i, _SYMBOLIC, d, expected)
            else:
                self.late.append((i, d, dim, found))
        return extents

    def strides(self, i: int, buffer: Buffer, tensor: str, extents: list[str]) -> None:
        """Check that a tensor is compact, or has the strides that the buffer declares."""
        if not buffer.shape:
            return
        s = self.s
        pointer = self.at(tensor, 32, "ptr")
        check, done = s.label("strides"), s.label("compact")
        s.branch(s.value(f"icmp eq ptr {pointer}, null"), done, check)
        s.start(check)
        expected, ok, empty = "1", "true", "false"
        for d in reversed(range(len(extents))):
            stride = self.at(pointer, 8 * d, "i64")
            unit = s.value(f"icmp sle i64 {extents[d]}, 1")
            good = s.value(f"or i1 {s.value(f'icmp eq i64 {stride}, {expected}')}, {unit}")
            ok = s.value(f"and i1 {ok}, {good}")
            empty = s.value(f"or i1 {empty}, {s.value(f'icmp eq i64 {extents[d]}, 0')}")
            expected = s.value(f"mul i64 {expected}, {extents[d]}")
        self.require(s.value(f"or i1 {ok}, {empty}"), i, _STRIDES, -1, "0")
        s.jump(done)
        s.start(done)

    def scalar(self, i: int, p: Var) -> str:
        """Check a scalar argument and return it as an argument of the body."""
        s = self.s
        kind, dt, t = self.field(i, 0, "i32"), DataType(p.dtype), llvm_type(p.dtype)
        if dt.is_float:
            is_float, is_int = (
                s.value(f"icmp eq i32 {kind}, 3"),
                s.value(f"icmp ule i32 {s.value(f'sub i32 {kind}, 1')}, 1"),
            )
            self.require(s.value(f"or i1 {is_float}, {is_int}"), i, _NOT_FLOAT, -1, "0")
            bits = self.field(i, 2, "i64")
            converted = s.value(f"sitofp i64 {bits} to double")
            value = s.value(
                f"select i1 {is_float}, double {s.value(f'bitcast i64 {bits} to double')}, double {converted}"
            )
            text = value if t == "double" else s.value(f"fptrunc double {value} to {t}")
        elif dt.code == "handle":
            text = self.field(i, 2, "ptr")
        else:
            self.require(s.value(f"icmp ule i32 {s.value(f'sub i32 {kind}, 1')}, 1"), i, _NOT_INT, -1, "0")
            value = self.field(i, 2, "i64")
            text = value if t == "i64" else s.value(f"trunc i64 {value} to {t}")
        s.env[id(p)] = text
        return f"{t} {text}"
