"""Modules of C: for each function its body, and an entry point in the convention of tvm-ffi that checks arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft import error, runtime, tir
from weft.arith.solve import determined
from weft.ir import DataType, GlobalVar, IRModule, Pass, PrimExpr, Sequential, Var, as_int, cast, find
from weft.machine import Machine, TargetLike, machine_of
from weft.target.c.emitter import HostEmitter
from weft.target.c.expr import EXPR, SPECIAL
from weft.target.c.prelude import CALLS, PRELUDE
from weft.target.c.source import STMT
from weft.target.clike import string
from weft.target.device_entry import bind_device, device_type
from weft.target.signature import dimension_vars, origins, returns_value, signature
from weft.tir import transform as t
from weft.tir.pipeline import custom_types, is_lowered, requested_checks, with_own_passes


class _Emitter(HostEmitter):
    expressions = EXPR
    statements = STMT
    special = SPECIAL


_CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}


def lower_c(func: tir.PrimFunc, target: TargetLike | None = None) -> tir.PrimFunc:
    """Lower a function to flat scalar loops: vectors are left to the C compiler."""
    name = func.attrs.get("global_symbol") or "main"
    passes = (
        [t.lower_intrin(target="c"), t.scalarize()]
        if is_lowered(func)
        else with_own_passes(_phases(machine_of(target)))
    )
    lowered = Sequential(passes, name="c.lower")(IRModule({name: func}))[name]
    assert isinstance(lowered, tir.PrimFunc)
    return lowered


def _phases(machine: Machine) -> list[tuple[int, Pass]]:
    return [
        (1, t.lower_blocks()),
        (1, t.lower_loop_jumps()),
        *[(1, p) for p in custom_types("c")],
        (1, t.simplify()),
        *[(1, p) for p in requested_checks()],
        (1, t.inject_virtual_thread()),
        (1, t.inject_prefetch(line_bytes=machine.cache_line_bytes)),
        (1, t.inject_double_buffer()),
        (1, t.hoist_if_then_else()),
        (1, t.compact_buffer()),
        (1, t.lower_intrin(target="c")),
        (1, t.flatten_buffer()),
        (2, t.scalarize()),
        (2, t.unroll_loop()),
        (3, t.simplify()),
    ]


def emit_c(functions: Sequence[tir.PrimFunc], target: TargetLike | None = None, *, entries: bool = True) -> str:
    """Write functions, lowered or not, as one file of C.

    Parameters
    ----------
    functions : sequence of PrimFunc
        The functions.
    target : Target or str, optional
        Target c.
    entries : bool
        Whether to write entry points that check arguments; without them there are bodies ``<name>_impl`` alone.

    Raises
    ------
    CodegenError
        For what target c does not express, and for names that are none in C.
    """
    lowered = [lower_c(f, target) for f in functions]
    siblings = {_name(f): f for f in lowered}
    texts = [_function(f, siblings, machine_of(target), entries) for f in lowered]
    heads = [t[: t.index(" {")] + ";" for t in texts] if any(find(f.body, GlobalVar) for f in lowered) else []
    return "\n".join([PRELUDE, *([CALLS] if any("weft_call(" in t for t in texts) else []), *heads, *texts])


def _name(func: tir.PrimFunc) -> str:
    return func.attrs.get("global_symbol") or "main"


def _function(func: tir.PrimFunc, siblings: Mapping[str, tir.PrimFunc], machine: Machine, entry: bool) -> str:
    name = _name(func)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise error.CodegenError(
            f"'{name}' is no name of a C function", where=func.span, expected="letters, digits and _"
        )
    if func.attrs.get("calling_conv") == 1:
        return _packed_function(func, name, machine)
    buffers = dict(func.buffer_map)
    device, body = bind_device(func)
    dims = [*dimension_vars(func), *([device] if device is not None else [])]
    s = _Emitter(machine)
    s.imported = {str(name) for name in func.attrs.get("tir.kernels") or ()}
    s.siblings = siblings
    restrict = " restrict" if func.attrs.get("tir.noalias") else ""
    params = []
    for p in func.params:
        buffer = buffers.get(p)
        if buffer is None:
            params.append(f"{s.type_of(p.dtype, p)} {s.fresh(p)}")
            continue
        of = s.pointers[buffer.data] = s.memory_type(buffer.dtype, buffer)
        params.append(f"{of}*{restrict} {s.fresh(buffer.data)}")
    params += [f"{s.type_of(v.dtype, v)} {s.fresh(v)}" for v in dims]
    if returns_value(body):
        s.result = "result"
        params.append("TVMFFIAny* result")
    s.stmt(body)
    text = "\n".join([f"static int {name}_impl({', '.join(params) or 'void'}) {{", *s.lines, "  return 0;", "}"])
    return text + "\n" + _Entry(func, name, buffers, dims, device).text() if entry else text


def _packed_function(func: tir.PrimFunc, name: str, machine: Machine) -> str:
    """A function that ``MakePackedAPI`` has given its checks."""
    s = _Emitter(machine)
    types = ("void*", "const TVMFFIAny*", "int32_t", "TVMFFIAny*")
    params = ", ".join(f"{of} {s.fresh(p)}" for of, p in zip(types, func.params, strict=True))
    s.result = s.names[func.params[-1]]
    s.stmt(func.body)
    return "\n".join(["", f"int {name}({params}) {{", *s.lines, "  return 0;", "}", ""])


class _Late(NamedTuple):
    """A value found in an argument that must equal an expression, once all variables are known."""

    arg: int
    what: str
    expr: PrimExpr
    found: Var
    unless: str


class _Entry:
    """The entry point of one function."""

    def __init__(
        self, func: tir.PrimFunc, name: str, buffers: dict[Var, tir.Buffer], dims: list[Var], device: Var | None
    ) -> None:
        self.func, self.name, self.buffers, self.dims, self.device = func, name, buffers, dims, device
        self.s = _Emitter()
        self.late: list[_Late] = []
        self.origins = origins(func)

    def text(self) -> str:
        """Emit the checks, numbers first because shapes may use them, and the call."""
        s, params = self.s, self.func.params
        s.emit(f"static const char* const signature = {string(signature(self.func, self.name))};")
        s.emit(
            f'if (num_args != {len(params)}) return weft_fail("TypeError", "Expected %d arguments when calling:'
            f'\\n  `%s`,\\n  found %d", {len(params)}, signature, (int)num_args);'
        )
        made: dict[int, str] = {}
        for i, p in sorted(enumerate(params), key=lambda x: x[1] in self.buffers):
            buffer = self.buffers.get(p)
            made[i] = self.scalar(i, p) if buffer is None else self.tensor(i, buffer)
        self.solve()
        for v in self.dims:
            if v not in s.names:
                raise error.CodegenError(
                    f"'{self.name}': no argument determines the dimension '{v.name}'", help="make it a parameter"
                )
        for late in self.late:
            expected = s.expr(cast("int64", late.expr))
            self.require(s.names[late.found], expected, late.arg, late.what, late.unless, how="Invalid")
        args = [made[i] for i in range(len(params))] + [s.names[v] for v in self.dims]
        if returns_value(self.func.body):
            args.append("ret")
        s.emit(f"return {self.name}_impl({', '.join(args)});")
        head = f"int __tvm_ffi_{self.name}(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* ret) {{"
        return "\n".join(["", head, *s.lines, "}", ""])

    def fail(self, bad: str, kind: str, arg: int, what: str, wanted: str, found: str = "", value: str = "") -> None:
        """Emit a check whose message says what does not fit, and shows the value found when there is one."""
        text = f"{what} on argument #{arg} when calling:\n  `%s`,\n  expected {wanted}" + (found and f", found {found}")
        self.s.emit(f"if ({bad}) return weft_fail({string(kind)}, {string(text)}, signature{value and ', ' + value});")

    def not_a(self, bad: str, arg: int, wanted: str) -> None:
        """Emit a check of the kind of an argument."""
        kind = f"(int)args[{arg}].type_index"
        self.fail(bad, "TypeError", arg, "Mismatched type", wanted, "a value of type index %d", kind)

    def require(
        self, found: str, expected: str, arg: int, what: str, unless: str = "", how: str = "Mismatched"
    ) -> None:
        """Emit the check of an extent or stride."""
        bad = f"{found} != {expected}" + (f" && !({unless})" if unless else "")
        origin = self.origins.get((arg, what.partition(".")[2]), "")
        wanted = origin and ("to match " if how == "Mismatched" else "") + origin.replace("%", "%%") + " == "
        values = f"(long long)({expected}), (long long)({found})"
        self.fail(bad, "ValueError", arg, f"{how} {what}", f"{wanted}%lld", "%lld", values)

    def match(self, expr: PrimExpr, found: str, arg: int, what: str, unless: str = "") -> None:
        """Require that a value is `expr`; a variable without a value takes it."""
        s = self.s
        if isinstance(expr, Var) and expr not in s.names:
            s.emit(f"{s.type_of(expr.dtype, expr)} {s.fresh(expr)} = {found};")
        elif as_int(expr) is not None or isinstance(expr, Var):
            how = "Mismatched" if isinstance(expr, Var) else "Invalid"
            self.require(found, s.expr(cast("int64", expr)), arg, what, unless, how)
        else:
            var = Var("found", "int64")
            s.emit(f"int64_t {s.fresh(var)} = {found};")
            self.late.append(_Late(arg, what, expr, var, unless))

    def solve(self) -> None:
        """Find dimensions that occur only inside expressions: ``2 * n + 1`` and an extent give ``n``."""
        s = self.s
        for v, value in determined([(late.expr, late.found) for late in self.late], s.names):
            text = s.expr(value)
            s.emit(f"{s.type_of(v.dtype, v)} {s.fresh(v)} = {text};")

    def scalar(self, i: int, p: Var) -> str:
        """Check a number, and return its name."""
        s, dt = self.s, DataType(p.dtype)
        of, value = s.type_of(p.dtype, p), f"args[{i}].v_int64"
        is_int = f"(args[{i}].type_index == 1 || args[{i}].type_index == 2)"
        if dt.code == "handle":
            value = f"args[{i}].type_index == 70 ? (char*)args[{i}].v_ptr + 24 : (char*)args[{i}].v_ptr"
        elif dt.is_float:
            self.not_a(f"args[{i}].type_index != 3 && !{is_int}", i, "float")
            value = f"args[{i}].type_index == 3 ? args[{i}].v_float64 : (double)args[{i}].v_int64"
        else:
            self.not_a(f"!{is_int}", i, "boolean" if dt.code == "bool" else "int")
            if dt.is_integer and dt.bits < 64:
                self.fail(
                    f"(int64_t)({of}){value} != {value}",
                    "ValueError",
                    i,
                    "Mismatched value",
                    f"an int that {dt} can hold",
                    "%lld",
                    f"(long long){value}",
                )
        s.emit(f"{of} {s.fresh(p)} = ({of})({value});")
        return s.names[p]

    def tensor(self, i: int, buffer: tir.Buffer) -> str:
        """Check a tensor, and return the address of its data."""
        s, dt, rank, x, name = self.s, DataType(buffer.dtype), len(buffer.shape), f"t{i}", buffer.name
        of = s.memory_type(buffer.dtype, buffer)
        s.emit(f"const DLTensor* {x} = weft_tensor(&args[{i}]);")
        self.not_a(f"!{x}", i, "Tensor")
        self.fail(
            f"{x}->ndim != {rank}", "ValueError", i, f"Mismatched {name}.ndim", str(rank), "%d", f"(int){x}->ndim"
        )
        wrong = f"{x}->dtype.code != {_CODES[dt.code]} || {x}->dtype.bits != {dt.bits} || {x}->dtype.lanes != 1"
        s.emit(f"if ({wrong}) return weft_wrong_dtype({i}, {string(name)}, signature, {string(str(dt))}, {x}->dtype);")
        self.place(i, name, x)
        for d, extent in enumerate(buffer.shape):
            self.match(extent, f"{x}->shape[{d}]", i, f"{name}.shape[{d}]")
        for d, stride in enumerate(buffer.strides):
            self.match(stride, f"weft_stride({x}, {d})", i, f"{name}.strides[{d}]", f"{x}->shape[{d}] <= 1")
        if not buffer.strides and rank:
            self.fail(
                f"!weft_compact({x})",
                "ValueError",
                i,
                f"Mismatched {name}.strides",
                "to be compact array",
                "other strides",
            )
        self.fail(f"!weft_placed({x})", "ValueError", i, "Missing Tensor data", "memory", "a null pointer")
        if buffer.elem_offset is None:
            if dt.itemsize > 1:
                unit = dt.itemsize & -dt.itemsize
                self.fail(
                    f"((uintptr_t){x}->data + {x}->byte_offset) % {unit}",
                    "ValueError",
                    i,
                    "Misaligned Tensor data",
                    f"data alignment={unit} bytes",
                    "another address",
                )
            return f"({of}*)((char*){x}->data + {x}->byte_offset)"
        self.match(buffer.elem_offset, f"(int64_t)({x}->byte_offset / {dt.itemsize})", i, f"{name}.elem_offset")
        return f"({of}*){x}->data"

    def place(self, i: int, name: str, x: str) -> None:
        """Check the device of a tensor."""
        kind = device_type(self.func)
        wanted = runtime.Device(kind, 0).type
        found = f'{x}->device.type == 1 ? "cpu" : {x}->device.type == 2 ? "cuda" : "another device"'
        self.fail(f"{x}->device.type != {kind}", "ValueError", i, f"Mismatched {name}.device_type", wanted, "%s", found)
        if self.device is not None:
            self.match(self.device, f"{x}->device.id", i, f"{name}.device_id (the device of earlier arguments)")
