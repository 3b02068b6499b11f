"""Runs scheduled TIR by turning it into Python loops over NumPy arrays: an oracle that shares no code with lowering."""

import math
from typing import Any

import numpy as np

from weft import ir, tir
from weft.frontend.common import pairs

_SIGNS = pairs("Add:+ Sub:- Mul:* FloorDiv:// FloorMod:% LT:< LE:<= GT:> GE:>= EQ:== NE:!= And:and Or:or")
_BINARY = {name: f"({{a}} {sign} {{b}})" for name, sign in _SIGNS.items()}
_BINARY |= {"Min": "min({a}, {b})", "Max": "max({a}, {b})"}


class _Emitter:
    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}

    def name(self, node: Any, hint: str) -> str:
        clean = "".join(c if c.isalnum() else "_" for c in hint)
        return self.names.setdefault(node, f"{clean}_{len(self.names)}")

    def expr(self, e: Any) -> str:
        kind = type(e).__name__
        if isinstance(e, ir.Var):
            return self.name(e, e.name)
        if kind == "IntImm":
            return repr(bool(e.value)) if e.dtype == "bool" else repr(e.value)
        if kind == "StringImm":
            return repr(e.value)
        if kind == "FloatImm":
            return (
                f"{ir.numpy_dtype(e.dtype).name}({e.value!r})"
                if math.isfinite(e.value)
                else f"{ir.numpy_dtype(e.dtype).name}('{e.value}')"
            )
        if kind in _BINARY:
            return _BINARY[kind].format(a=self.expr(e.a), b=self.expr(e.b))
        if kind == "Div":
            a, b = self.expr(e.a), self.expr(e.b)
            return f"({a} / {b})" if ir.is_float(e.dtype) else f"int({a} / {b})"
        if kind == "Not":
            return f"(not {self.expr(e.a)})"
        if kind == "Cast":
            inner = self.expr(e.value)
            return f"int({inner})" if ir.is_integer(e.dtype) else f"{ir.numpy_dtype(e.dtype).name}({inner})"
        if kind == "Select":
            return f"({self.expr(e.true_value)} if {self.expr(e.condition)} else {self.expr(e.false_value)})"
        if kind == "BufferLoad":
            return f"{self.name(e.buffer, e.buffer.name)}[{self.index(e)}]"
        if kind == "CallIntrin":
            return self.call(e)
        raise NotImplementedError(kind)

    def call(self, e: Any) -> str:
        op = e.op.name.removeprefix("tir.")
        if op == "address_of":
            return self.address(e.args[0])
        args = [self.expr(a) for a in e.args]
        if op == "call_extern":
            return f"EXTERN[{args[0]}]({', '.join(args[1:])})"
        if op == "if_then_else":
            return f"({args[1]} if {args[0]} else {args[2]})"
        return f"INTRIN['{op}']({', '.join(args)})"

    def address(self, load: Any) -> str:
        place = "0"
        for i, d in zip(load.indices, load.buffer.shape, strict=True):
            place = f"({place}) * {self.expr(d)} + {self.expr(i)}"
        return f"{self.name(load.buffer.data, 'data')}[{place} :]"

    def index(self, access: Any) -> str:
        parts = [
            f"ck({self.expr(i)}, {self.expr(d)}, '{access.buffer.name}')"
            for i, d in zip(access.indices, access.buffer.shape, strict=True)
        ]
        return ", ".join(parts) + ("," if len(parts) == 1 else "") if parts else "()"

    def emit(self, s: Any, depth: int) -> None:
        pad = "    " * depth
        kind = type(s).__name__
        if kind == "SeqStmt":
            for c in s.seq:
                self.emit(c, depth)
        elif kind == "For":
            low = self.expr(s.min)
            order = "reversed" if s.kind in (tir.ForKind.PARALLEL, tir.ForKind.VECTORIZED) else ""
            self.lines.append(
                f"{pad}for {self.name(s.loop_var, s.loop_var.name)} in "
                f"{order}(range({low}, {low} + {self.expr(s.extent)})):"
            )
            self.emit(s.body, depth + 1)
        elif kind == "BlockRealize":
            self.lines.append(f"{pad}if {self.expr(s.predicate)}:")
            for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
                self.lines.append(f"{pad}    {self.name(iv.var, iv.var.name)} = {self.expr(value)}")
                self.lines.append(
                    f"{pad}    assert {self.expr(iv.dom.min)} <= {self.name(iv.var, '')} < "
                    f"{self.expr(iv.dom.min + iv.dom.extent)}, '{s.block.name_hint}.{iv.var.name}'"
                )
            self.block(s.block, depth + 1)
        elif kind == "BufferStore":
            self.lines.append(f"{pad}{self.name(s.buffer, s.buffer.name)}[{self.index(s)}] = {self.expr(s.value)}")
        elif kind in ("LetStmt", "AllocBuffer", "AttrStmt"):
            self.bind(s, pad)
            self.emit(s.body, depth)
        elif kind == "IfThenElse":
            self.lines.append(f"{pad}if {self.expr(s.condition)}:")
            self.emit(s.then_case, depth + 1)
            if s.else_case is not None:
                self.lines.append(f"{pad}else:")
                self.emit(s.else_case, depth + 1)
        elif kind == "Evaluate":
            self.lines.append(f"{pad}{self.expr(s.value)}")
        else:
            raise NotImplementedError(kind)

    def bind(self, s: Any, pad: str) -> None:
        if isinstance(s, tir.LetStmt):
            self.lines.append(f"{pad}{self.name(s.var, s.var.name)} = {self.expr(s.value)}")
        elif isinstance(s, tir.AllocBuffer):
            self.allocate(s.buffer, pad)

    def allocate(self, buffer: Any, pad: str) -> None:
        shape = ", ".join(self.expr(d) for d in buffer.shape)
        self.lines.append(
            f"{pad}{self.name(buffer, buffer.name)} = "
            f"poison(({shape}{',' if buffer.shape else ''}), '{ir.numpy_dtype(buffer.dtype).name}')"
        )
        self.lines.append(f"{pad}{self.name(buffer.data, 'data')} = {self.name(buffer, '')}.reshape(-1)")

    def block(self, b: Any, depth: int) -> None:
        pad = "    " * depth
        for buffer in b.alloc_buffers:
            self.allocate(buffer, pad)
        if b.init is not None:
            first = [
                f"{self.name(iv.var, '')} == {self.expr(iv.dom.min)}" for iv in b.iter_vars if iv.iter_type == "reduce"
            ]
            self.lines.append(f"{pad}if {' and '.join(first) or 'True'}:")
            self.emit(b.init, depth + 1)
        self.emit(b.body, depth)


def _check(index: int, extent: int, name: str) -> int:
    assert 0 <= index < extent, f"index {index} of '{name}' is outside of {extent}"
    return index


def _poison(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    array = np.empty(shape, dtype)
    array.fill(np.nan if array.dtype.kind == "f" else 77)
    return array


def run(func: tir.PrimFunc, *arrays: Any) -> None:
    """Run a scheduled function on arrays (outputs are written in place); every index is checked."""
    emitter = _Emitter()
    env: dict[str, Any] = {"np": np, "ck": _check, "poison": _poison, "INTRIN": _intrinsics(), "EXTERN": EXTERN}
    for kind in ("float32", "float64", "float16", "int32", "int64", "int8", "uint8"):
        env[kind] = np.dtype(kind).type
    for param, array in zip(func.params, arrays, strict=True):
        buffer = func.buffer_of(param)
        if buffer is None:
            env[emitter.name(param, param.name)] = array
            continue
        env[emitter.name(buffer, buffer.name)] = array
        env[emitter.name(buffer.data, "data")] = array.reshape(-1)
        for d, n in zip(buffer.shape, array.shape, strict=True):
            if isinstance(d, ir.Var):
                env[emitter.name(d, d.name)] = n
            else:
                assert ir.as_int(d) in (None, n), f"{buffer.name}: {d} != {n}"
    emitter.emit(func.body, 1)
    names = [n for n in env if n.isidentifier()]
    source = "def f(" + ", ".join(names) + "):\n" + "\n".join(emitter.lines)
    scope: dict[str, Any] = {}
    exec(source, {"__builtins__": __builtins__}, scope)
    with np.errstate(all="ignore"):
        scope["f"](*[env[n] for n in names])


def _reversed_copy(to: np.ndarray, given: np.ndarray, n: int) -> None:
    to[:n] = given[:n][::-1]


EXTERN = {"reversed_copy": _reversed_copy}


def _intrinsics() -> dict[str, Any]:
    table = {n: i.reference for n, i in tir.intrin.INTRINSICS.items()} if hasattr(tir, "intrin") else {}
    table |= {
        "exp": np.exp,
        "sqrt": np.sqrt,
        "tanh": np.tanh,
        "erf": lambda x: np.float32(math.erf(x)),
        "fabs": abs,
        "abs": abs,
        "rsqrt": lambda x: np.float32(1 / np.sqrt(x)),
        "likely": lambda x: x,
    }
    return table
