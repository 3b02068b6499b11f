"""Emission of a function and of its entry point in the safe-call convention of tvm-ffi.

``int32_t __tvm_ffi_<name>(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret)`` checks every
argument, binds symbolic dimensions, and calls ``<name>_impl`` with raw pointers. A failed check sets the raised error
and returns -1.
"""

from __future__ import annotations

from typing import NamedTuple

from weft import error, tir
from weft.arith.solve import determined
from weft.ir import DataType, PrimExpr, Var, as_int, cast
from weft.target.device_entry import bind_device, device_type
from weft.target.llvm.convert import convert
from weft.target.llvm.emitter import FunctionEmitter, ModuleEmitter
from weft.target.llvm.packed import DTYPE_CODES
from weft.target.llvm.services import Failure
from weft.target.llvm.stmt import STMT, finish
from weft.target.llvm.support import argument_error, checked_tensor, raise_error, request_tiles, tensor_spec
from weft.target.llvm.types import llvm_type, tensor_member
from weft.target.signature import called_intrinsics, dimension_vars, origins, returns_value, signature

_ANY = "{ i32, i32, i64 }"


class _Late(NamedTuple):
    """A value found in an argument that must equal an expression, once all variables are known."""

    arg: int
    code: int
    dim: int
    expr: PrimExpr
    found: Var
    unless: str


def emit_function(module: ModuleEmitter, func: tir.PrimFunc, linkage: str = "internal") -> None:
    """Emit the body and the entry point of a lowered function; `linkage` is that of the body."""
    name = func.attrs.get("global_symbol")
    if not name:
        raise error.CodegenError("a function without 'global_symbol' has no entry point", where=func.span)
    if func.attrs.get("calling_conv") == 1:  # MakePackedAPI wrote the checks
        _emit_packed(module, func, str(name))
        return
    dims, device = emit_body(module, func, name, f"{linkage} i32", "noinline")
    Entry(module, func, name, FunctionEmitter(module, f"__tvm_ffi_{name}"), dims, device).emit()


def emit_body(
    module: ModuleEmitter, func: tir.PrimFunc, name: str, kind: str, attribute: str = ""
) -> tuple[list[Var], Var | None]:
    """Emit ``<name>_impl``, a function of raw pointers, scalars and dimensions; `kind` is its linkage and type.

    Returns
    -------
    dims : list of Var
        The parameters behind those of `func`.
    device : Var or None
        That of them which is the number of the device.
    """
    device, body = bind_device(func)
    called = called_intrinsics(body)
    dims = [*dimension_vars(func), *([device] if device is not None else [])]
    buffers = dict(func.buffer_map)
    module.imported.update(str(name) for name in func.attrs.get("tir.kernels") or ())
    module.linked |= dict.fromkeys(func.attrs.get("tir.import_llvm") or ())
    impl = FunctionEmitter(module, f"{name}_impl")
    impl.noalias = bool(func.attrs.get("tir.noalias", False))
    params = []
    for i, p in enumerate(func.params):
        buffer = buffers.get(p)
        if buffer is not None:
            params.append(f"ptr {'noalias ' if impl.noalias else ''}%a{i}")
            impl.pointers[buffer.data] = f"%a{i}"
        else:
            params.append(f"{llvm_type(p.dtype)} %a{i}")
            (impl.pointers if p.dtype == "handle" else impl.env)[p] = f"%a{i}"
    for j, v in enumerate(dims):
        params.append(f"{llvm_type(v.dtype)} %d{j}")
        impl.env[v] = f"%d{j}"
        impl.analyzer.mark_global_non_neg(v)
    if func.attrs.get("calling_conv") == 1:
        impl.result = f"%a{len(func.params) - 1}"
    elif "tir.ret" in called:
        params.append("ptr %result")
        impl.result = "%result"
    if "tir.tile_configure" in called:
        request_tiles(impl, name)
    STMT(body, impl)
    impl.emit("ret i32 0")
    module.functions.append(finish(impl, f"define {kind} @{name}_impl({', '.join(params)}) {attribute} #0"))
    return dims, device


def _emit_packed(module: ModuleEmitter, func: tir.PrimFunc, name: str) -> None:
    """Emit a function that takes packed arguments itself."""
    emit_body(module, func, name, "internal i32", "noinline")
    params = ", ".join(f"{llvm_type(p.dtype)} %a{i}" for i, p in enumerate(func.params))
    s = FunctionEmitter(module, name)
    _leave(s, s.effect(f"call i32 @{name}_impl({params})"), name)
    module.functions.append(finish(s, f"define i32 @{name}({params}) #0"))


def _leave(s: FunctionEmitter, code: str, name: str) -> None:
    """Return what the body returned; where it found no memory, raise that."""
    s.branch(s.value(f"icmp eq i32 {code}, -2"), "nomem", "out")
    s.start("nomem")
    text = s.module.string(f"{name}: out of memory for a workspace")
    s.emit("ret i32 " + s.effect(raise_error(s.module, s.module.string("MemoryError"), text)))
    s.start("out")
    s.emit(f"ret i32 {code}")


class Entry:
    """Emission of one entry point: checks of the arguments, and the call of the body."""

    def __init__(
        self,
        module: ModuleEmitter,
        func: tir.PrimFunc,
        name: str,
        s: FunctionEmitter,
        dims: list[Var],
        device: Var | None = None,
    ) -> None:
        self.module, self.func, self.name, self.s = module, func, name, s
        self.buffers = dict(func.buffer_map)
        self.dims, self.device = dims, device
        self.failures: list[str] = []
        self.late: list[_Late] = []
        shown = signature(func, name)
        lines = "".join(f"\n{i}.{field}={text}" for (i, field), text in origins(func).items())
        self.signature, self.plain = module.string(shown + lines), module.string(f"an argument does not fit {shown}")

    def emit(self) -> None:
        """Emit checks in the order of the arguments, then the call."""
        s = self.s
        n = len(self.func.params)
        self.require(s.value(f"icmp eq i32 %num_args, {n}"), n, Failure.COUNT, -1, str(n))
        args: list[str] = []
        order = sorted(
            range(n), key=lambda i: self.func.params[i] in self.buffers
        )  # numbers first: shapes may use them
        made = {i: self.argument(i, self.func.params[i]) for i in order}
        args = [made[i] for i in range(n)]
        self.solve()
        for v in self.dims:
            if v not in s.env:
                raise error.CodegenError(
                    f"'{self.name}': no argument determines the dimension '{v.name}'", help="make it a parameter"
                )
        for late in self.late:
            expected = s.expr(cast("int64", late.expr))
            ok = s.value(f"icmp eq i64 {s.env[late.found]}, {expected}")
            self.require(
                s.value(f"or i1 {ok}, {late.unless}") if late.unless else ok, late.arg, late.code, late.dim, expected
            )
        args += [f"{llvm_type(v.dtype)} {s.env[v]}" for v in self.dims]
        if returns_value(self.func.body):
            args.append("ptr %ret")
        code = s.effect(f"call i32 @{self.name}_impl({', '.join(args)})")
        _leave(s, code, self.name)
        s.lines.extend(self.failures)
        header = f"define i32 @__tvm_ffi_{self.name}(ptr %self, ptr %args, i32 %num_args, ptr %ret) #0"
        self.module.functions.append(finish(s, header))

    def argument(self, i: int, p: Var) -> str:
        """Check an argument and return it as an argument of the body."""
        buffer = self.buffers.get(p)
        return self.scalar(i, p) if buffer is None else self.tensor(i, buffer)

    def solve(self) -> None:
        """Find dimensions that occur only inside expressions: ``2 * n + 1`` and an extent give ``n``."""
        s = self.s
        for v, value in determined([(late.expr, late.found) for late in self.late], s.env):
            s.env[v] = convert(s, s.expr(value), DataType("int64"), DataType(v.dtype))

    def match(self, expr: PrimExpr, found: str, arg: int, code: int, dim: int, unless: str = "") -> None:
        """Require that a value found in an argument is `expr`; a variable without a value takes it."""
        s = self.s
        known = as_int(expr)
        if isinstance(expr, Var) and expr not in s.env:
            s.env[expr] = convert(s, found, DataType("int64"), DataType(expr.dtype))
        elif known is not None:
            ok = s.value(f"icmp eq i64 {found}, {known}")
            self.require(s.value(f"or i1 {ok}, {unless}") if unless else ok, arg, code, dim, str(known))
        elif isinstance(expr, Var):
            expected = s.expr(cast("int64", expr))
            self.require(
                s.value(f"icmp eq i64 {found}, {expected}"),
                arg,
                Failure.SYMBOLIC if code == Failure.SHAPE else code,
                dim,
                expected,
            )
        else:
            var = Var("found", "int64")
            s.env[var] = found
            self.late.append(_Late(arg, code, dim, expr, var, unless))

    def require(self, ok: str, arg: int, code: int, dim: int, expected: str) -> None:
        """Go on if `ok`, else fail with a code that the runtime turns into a message."""
        s = self.s
        good, bad = s.label("ok"), s.label("bad")
        s.branch(ok, good, bad, ", !prof !0")
        args, count = self.arguments(arg)
        call = argument_error(self.module, self.signature, self.plain, arg, code, dim, expected, args, count)
        self.refuse(bad, call)
        s.start(good)

    def arguments(self, arg: int) -> tuple[str, str]:
        """The array of arguments in which an error message finds argument `arg`, and how many there are."""
        return "%args", "%num_args"

    def refuse(self, label: str, call: str = "") -> None:
        """Emit the block of a failed check, which leaves with what `call` gives; without one, the error is there."""
        if not call:
            self.failures += [f"{label}:", "  ret i32 -1"]
            return
        result = self.s.fresh("rc")
        self.failures += [f"{label}:", f"  {result} = {call}", f"  ret i32 {result}"]

    def field(self, i: int, index: int, t: str) -> str:
        """Load a field of argument `i`."""
        args, _ = self.arguments(i)
        pointer = self.s.value(f"getelementptr inbounds {_ANY}, ptr {args}, i64 {i}, i32 {index}")
        return self.s.value(f"load {t}, ptr {pointer}")

    def at(self, pointer: str, offset: int, t: str) -> str:
        """Load from a byte offset."""
        return self.s.value(f"load {t}, ptr {self.s.value(f'getelementptr inbounds i8, ptr {pointer}, i64 {offset}')}")

    def member(self, tensor: str, name: str, t: str) -> str:
        """Load a member of a DLTensor."""
        return self.s.value(f"load {t}, ptr {self.s.value(tensor_member(tensor, name))}")

    def tensor(self, i: int, buffer: tir.Buffer) -> str:
        """Check a tensor argument; return its data pointer as an argument of the body."""
        s, dt, rank = self.s, DataType(buffer.dtype), len(buffer.shape)
        tensor = self.checked(i, buffer, dt)
        if self.device is not None:
            number = s.value(f"sext i32 {self.member(tensor, 'device_id', 'i32')} to i64")
            self.match(self.device, number, i, Failure.DEVICE_ID, -1)
        shape = self.member(tensor, "shape", "ptr") if rank else ""
        for d, dim in enumerate(buffer.shape):
            if as_int(dim) is None:
                self.match(dim, self.at(shape, 8 * d, "i64"), i, Failure.SHAPE, d)
        if buffer.strides:
            self.declared_strides(i, buffer, tensor, [self.at(shape, 8 * d, "i64") for d in range(rank)])
        data, offset = self.member(tensor, "data", "ptr"), self.member(tensor, "byte_offset", "i64")
        if buffer.elem_offset is not None:
            found = s.value(f"sdiv i64 {offset}, {dt.itemsize}")
            self.match(buffer.elem_offset, found, i, Failure.STRIDES, -1)
            return f"ptr {data}"
        return f"ptr {s.value(f'getelementptr inbounds i8, ptr {data}, i64 {offset}')}"

    def checked(self, i: int, buffer: tir.Buffer, dt: DataType) -> str:
        """Check what is known of a tensor while compiling; return its DLTensor."""
        s, module = self.s, self.module
        alignment = 1 if buffer.elem_offset is not None else max(1, dt.itemsize & -dt.itemsize)
        packed = DTYPE_CODES[dt.code] | dt.bits << 8 | dt.lanes << 16
        spec = tensor_spec(
            module, packed, device_type(self.func), alignment, not buffer.strides, [as_int(d) for d in buffer.shape]
        )
        args, count = self.arguments(i)
        tensor = s.effect(checked_tensor(module, spec, i, self.signature, self.plain, args, count))
        good, bad = s.label("ok"), s.label("bad")
        s.branch(s.value(f"icmp ne ptr {tensor}, null"), good, bad, ", !prof !0")
        self.refuse(bad)
        s.start(good)
        return tensor

    def _row_major(self, extents: list[str]) -> list[str]:
        """The strides of a compact tensor."""
        expected: list[str] = []
        step = "1"
        for extent in reversed(extents):
            expected.insert(0, step)
            step = extent if step == "1" else self.s.value(f"mul i64 {step}, {extent}")
        return expected

    def declared_strides(self, i: int, buffer: tir.Buffer, tensor: str, extents: list[str]) -> None:
        """Match the strides that a buffer declares; a tensor without strides has those of a compact one."""
        s = self.s
        pointer, row_major = self.member(tensor, "strides", "ptr"), self._row_major(extents)
        absent = s.value(f"icmp eq ptr {pointer}, null")
        safe = s.value(f"select i1 {absent}, ptr {self.member(tensor, 'shape', 'ptr')}, ptr {pointer}")
        for d, expr in enumerate(buffer.strides):
            found = s.value(f"select i1 {absent}, i64 {row_major[d]}, i64 {self.at(safe, 8 * d, 'i64')}")
            self.match(expr, found, i, Failure.STRIDES, d, s.value(f"icmp sle i64 {extents[d]}, 1"))

    def scalar(self, i: int, p: Var) -> str:
        """Check a scalar argument and return it as an argument of the body."""
        s = self.s
        kind, dt, t = self.field(i, 0, "i32"), DataType(p.dtype), llvm_type(p.dtype)
        is_int = s.value(f"icmp ule i32 {s.value(f'sub i32 {kind}, 1')}, 1")  # int or bool
        bits = self.field(i, 2, "i64") if dt.code != "handle" else self.field(i, 2, "ptr")
        if dt.is_float:
            is_float = s.value(f"icmp eq i32 {kind}, 3")
            self.require(s.value(f"or i1 {is_float}, {is_int}"), i, Failure.NOT_FLOAT, -1, "0")
            exact = s.value(f"bitcast i64 {bits} to double")
            number = s.value(f"select i1 {is_float}, double {exact}, double {s.value(f'sitofp i64 {bits} to double')}")
            text = convert(s, number, DataType("float64"), dt)
        elif dt.code == "handle":  # of a tensor, its DLPack structure
            inside = s.value(f"getelementptr i8, ptr {bits}, i64 24")
            text = s.value(f"select i1 {s.value(f'icmp eq i32 {kind}, 70')}, ptr {inside}, ptr {bits}")
        else:
            self.require(is_int, i, Failure.NOT_INT, -1, str(int(dt.code == "bool")))
            text = convert(s, bits, DataType("int64"), dt)
            if dt.is_integer and dt.bits < 64:
                back = s.value(f"{'zext' if dt.code == 'uint' else 'sext'} {t} {text} to i64")
                packed = DTYPE_CODES[dt.code] | dt.bits << 8
                self.require(s.value(f"icmp eq i64 {back}, {bits}"), i, Failure.RANGE, -1, str(packed))
        s.env[p] = text
        return f"{t} {text}"
