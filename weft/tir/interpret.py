"""The meaning of TIR: an interpreter, slow and plain, with which every schedule, pass and code generator is compared.

Scheduled and lowered functions run alike; loops of every kind run in order, vectors are NumPy arrays. Scalars are
NumPy scalars of their data type, so integer arithmetic wraps as it does on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft import ir
from weft.error import InvalidArgument, LoweringError, ShapeMismatch
from weft.tir import stmt as stmts
from weft.tir.analysis.structure import empty_inits
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import INTRINSICS
from weft.tir.match_buffer import lower_match_buffers
from weft.tir.reduce import TENSOR_EXPRS
from weft.tir.tiles import TileRegisters

_TILE = 64


def interpret(func: PrimFunc, *args: Any) -> None:
    """Run a function; arrays are changed in place.

    Parameters
    ----------
    func : PrimFunc
        Scheduled or lowered.
    args : numpy.ndarray or number
        One for each parameter: C-contiguous arrays for buffers.

    Raises ShapeMismatch when an array has another shape than its buffer.
    """
    if len(args) != len(func.params):
        raise InvalidArgument("wrong number of arguments", expected=str(len(func.params)), found=str(len(args)))
    state = _State()
    buffers = dict(func.buffer_map)
    late: list[tuple[Buffer, np.ndarray]] = []
    with np.errstate(all="ignore"):
        for p, a in zip(func.params, args, strict=True):
            buffer = buffers.get(p)
            if buffer is None:
                state.env[p] = ir.numpy_dtype(p.dtype).type(a)
                continue
            if not isinstance(a, np.ndarray) or not a.flags.c_contiguous or len(a.shape) != len(buffer.shape):
                raise InvalidArgument(
                    f"'{buffer.name}' takes a C-contiguous array of {len(buffer.shape)} dimensions", found=repr(type(a))
                )
            for d, n in zip(buffer.shape, a.shape, strict=True):
                if isinstance(d, ir.Var):
                    state.env.setdefault(d, ir.numpy_dtype(d.dtype).type(n))
            state.memory[buffer.data] = a.reshape(-1)
            late.append((buffer, a))
        for buffer, a in late:
            expected = tuple(int(state.expr(d)) for d in buffer.shape)
            if expected != a.shape:
                raise ShapeMismatch(f"'{buffer.name}' has another shape", expected=str(expected), found=str(a.shape))
        state.note_inits(func.body)
        state.stmt(func.body)


def evaluate(e: ir.PrimExpr, values: Mapping[Any, Any]) -> Any:
    """Evaluate a scalar expression, given the values of its variables; a NumPy scalar.

    Raises
    ------
    LoweringError
        When a variable has none.
    """
    state = _State()
    state.env = {v: ir.numpy_dtype(v.dtype).type(x) for v, x in values.items()}
    return _EXPR(e, state)


class _JumpError(Exception):
    """The body under way ends; also its loop, or not."""

    def __init__(self, goes_on: bool) -> None:
        super().__init__("'break' or 'continue' outside of a loop")
        self.goes_on = goes_on


class _State:
    """Values of variables and the memory behind buffers."""

    def __init__(self) -> None:
        self.env: dict[ir.Var, Any] = {}
        self.memory: dict[ir.Var, np.ndarray] = {}
        self.padded: dict[Buffer, list[int]] = {}
        self.inits: dict[stmts.For, list[tuple[list[ir.PrimExpr], stmts.Stmt]]] = {}
        self.tiles = TileRegisters()

    def note_inits(self, body: stmts.Stmt) -> None:
        """Note by loop which reductions below it may be empty, and what stores their identities before it."""
        for extents, loop, nest in empty_inits(body):
            self.inits.setdefault(loop, []).append((extents, nest))

    def expr(self, e: Any) -> Any:
        """Evaluate an expression."""
        return _EXPR(e, self)

    def stmt(self, s: stmts.Stmt | None) -> None:
        """Run a statement."""
        _STMT(s, self)

    def once(self, body: stmts.Stmt) -> bool:
        """Run a loop's body; whether the loop goes on."""
        try:
            self.stmt(body)
        except _JumpError as jump:
            return jump.goes_on
        return True

    def allocate(self, buffer: Buffer) -> None:
        """Give a buffer fresh memory, filled with a value that no computation expects."""
        dims = [int(self.expr(d)) for d in buffer.shape]
        if buffer.scope == "local":  # has room for whole tiles, which may end behind the tensor
            dims = self.padded[buffer] = [d + _TILE for d in dims]
        size = int(np.prod(dims, dtype=np.int64))
        dtype = ir.numpy_dtype(buffer.dtype)
        self.memory[buffer.data] = np.full(
            max(size, 1), 77 if dtype.kind in "iu" else (True if dtype.kind == "b" else np.nan), dtype
        )

    def offset(self, buffer: Buffer, indices: tuple[ir.PrimExpr, ...]) -> Any:
        """The flat offset(s) of an element or of the elements of a vector."""
        values = [self.expr(i) for i in indices]
        total: Any = np.int64(0 if buffer.elem_offset is None else int(self.expr(buffer.elem_offset)))
        if buffer.strides:
            for v, s in zip(values, buffer.strides, strict=True):
                total = total + np.asarray(v, np.int64) * int(self.expr(s))
            return total
        dims = self.padded.get(buffer) or [int(self.expr(d)) for d in buffer.shape]
        for v, d in zip(values, dims, strict=True):
            total = total * d + np.asarray(v, np.int64)
        return total


# Tensor expressions are gone when they are run; a block runs where it is realized, with its variables bound.
_EXPR = ir.Dispatch("interpret an expression", (ir.PrimExpr,), leaves_out=TENSOR_EXPRS)
_STMT = ir.Dispatch("interpret a statement", (stmts.Stmt,), leaves_out=(stmts.Block, stmts.BufferRealize))


@_EXPR.on(ir.IntImm, ir.FloatImm)
def _number(e: Any, s: _State) -> Any:
    return ir.numpy_dtype(e.dtype).type(e.value)


@_EXPR.on(ir.StringImm)
def _string(e: ir.StringImm, s: _State) -> Any:
    return e.value


@_EXPR.on(ir.Var)
def _var(e: ir.Var, s: _State) -> Any:
    if e not in s.env:
        raise LoweringError(f"variable '{e.name}' has no value")
    return s.env[e]


def _divide(a: Any, b: Any, fn: Any) -> Any:
    """Divide integers; by zero gives 0, and so does the remainder."""
    if np.asarray(a).dtype.kind not in "iu":
        return fn(a, b)
    return np.where(b == 0, 0, fn(a, np.where(b == 0, 1, b))).astype(np.asarray(a).dtype)


def _floordiv(a: Any, b: Any) -> Any:
    return _divide(a, b, np.floor_divide)


def _floormod(a: Any, b: Any) -> Any:
    return _divide(a, b, np.mod)


def _div(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind not in "iu":
        return np.divide(a, b)
    return _divide(
        a,
        b,
        lambda x, y: np.floor_divide(x, y) + ((np.fmod(x, y) != 0) & ((x < 0) != (y < 0))).astype(np.asarray(x).dtype),
    )


def _mod(a: Any, b: Any) -> Any:
    return _divide(a, b, np.fmod)


_BINARY = {
    ir.Add: np.add,
    ir.Sub: np.subtract,
    ir.Mul: np.multiply,
    ir.Div: _div,
    ir.Mod: _mod,
    ir.FloorDiv: _floordiv,
    ir.FloorMod: _floormod,
    ir.Min: np.minimum,
    ir.Max: np.maximum,
    ir.EQ: np.equal,
    ir.NE: np.not_equal,
    ir.LT: np.less,
    ir.LE: np.less_equal,
    ir.GT: np.greater,
    ir.GE: np.greater_equal,
}


@_EXPR.on(*_BINARY)
def _binary(e: Any, s: _State) -> Any:
    result = _BINARY[type(e)](s.expr(e.a), s.expr(e.b))
    return np.asarray(result).astype(ir.numpy_dtype(e.dtype))[()]


@_EXPR.on(ir.And)
def _and(e: ir.And, s: _State) -> Any:
    a = s.expr(e.a)
    return (
        np.logical_and(a, s.expr(e.b)) if np.ndim(a) or a else a
    )  # the right side may only be valid where the left holds


@_EXPR.on(ir.Or)
def _or(e: ir.Or, s: _State) -> Any:
    a = s.expr(e.a)
    return np.logical_or(a, s.expr(e.b)) if np.ndim(a) or not a else a


@_EXPR.on(ir.Not)
def _not(e: ir.Not, s: _State) -> Any:
    return np.logical_not(s.expr(e.a))


@_EXPR.on(ir.Select)
def _select(e: ir.Select, s: _State) -> Any:
    return np.where(s.expr(e.condition), s.expr(e.true_value), s.expr(e.false_value))[()]


def _saturate(value: float, low: int, high: int) -> int:
    if not math.isfinite(value):
        return 0 if math.isnan(value) else high if value > 0 else low
    return min(max(int(value), low), high)


@_EXPR.on(ir.Cast)
def _cast(e: ir.Cast, s: _State) -> Any:
    value, target = np.asarray(s.expr(e.value)), ir.DataType(e.dtype)
    if target.is_integer and value.dtype.kind not in "iub":
        limits = np.iinfo(ir.numpy_dtype(target))
        exact = [_saturate(v, limits.min, limits.max) for v in value.astype(np.float64).reshape(-1).tolist()]
        value = np.asarray(exact, ir.numpy_dtype(target)).reshape(value.shape)
    return value.astype(ir.numpy_dtype(e.dtype))[()]


@_EXPR.on(ir.Let)
def _let(e: ir.Let, s: _State) -> Any:
    s.env[e.var] = s.expr(e.value)
    return s.expr(e.body)


@_EXPR.on(ir.Ramp)
def _ramp(e: ir.Ramp, s: _State) -> Any:
    return s.expr(e.base) + s.expr(e.stride) * np.arange(e.lanes, dtype=ir.numpy_dtype(e.base.dtype))


@_EXPR.on(ir.Broadcast)
def _broadcast(e: ir.Broadcast, s: _State) -> Any:
    return np.full(e.lanes, s.expr(e.value))


@_EXPR.on(ir.Shuffle)
def _shuffle(e: ir.Shuffle, s: _State) -> Any:
    lanes = np.concatenate([np.atleast_1d(s.expr(v)) for v in e.vectors])
    picked = lanes[[int(s.expr(i)) for i in e.indices]]
    return picked[0] if len(e.indices) == 1 else picked


@_EXPR.on(BufferLoad)
def _load(e: BufferLoad, s: _State) -> Any:
    memory, offset = s.memory[e.buffer.data], s.offset(e.buffer, e.indices)
    if e.predicate is not None:
        mask = np.broadcast_to(s.expr(e.predicate), np.shape(offset))
        out = np.zeros(np.shape(offset), memory.dtype)
        out[mask] = _at(memory, offset[mask], e.buffer)
        return out
    return _at(memory, offset, e.buffer)


def _at(memory: np.ndarray, offset: Any, buffer: Buffer) -> Any:
    if np.size(offset) and (np.min(offset) < 0 or np.max(offset) >= memory.size):
        raise LoweringError(
            f"access outside of buffer '{buffer.name}'", expected=f"offset in 0..{memory.size - 1}", found=str(offset)
        )
    return memory[offset]


@_EXPR.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, s: _State) -> Any:
    name = e.op.name.removeprefix("tir.")
    if name == "prefetch":
        return 0
    if name in ("break_loop", "continue_loop"):
        raise _JumpError(name == "continue_loop")
    if name == "message":
        text, *values = (s.expr(a) for a in e.args)
        return str(text).replace("%lld", "%d") % tuple(int(v) for v in values)
    if name == "if_then_else":
        condition = s.expr(e.args[0])
        if np.ndim(condition):
            return np.where(condition, s.expr(e.args[1]), s.expr(e.args[2]))
        return s.expr(e.args[1] if condition else e.args[2])
    if name in ("likely", "assume"):
        return s.expr(e.args[0])
    if name == "any_lane":
        return np.any(s.expr(e.args[0]))
    if name.startswith("tile_"):
        return _tile(name.removeprefix("tile_"), e, s)
    if name == "reinterpret":
        return np.asarray(s.expr(e.args[0])).view(ir.numpy_dtype(e.dtype))[()]
    intrinsic = INTRINSICS.get(name)
    if intrinsic is None:
        raise LoweringError(f"the interpreter does not know the intrinsic '{name}'", where=e.span)
    args = [s.expr(a) for a in e.args]
    wide = [
        np.asarray(a, np.float32) if ir.DataType(x.dtype).is_float and ir.DataType(x.dtype).bits == 16 else a
        for a, x in zip(args, e.args, strict=True)
    ]
    return np.asarray(intrinsic.reference(*wide)).astype(ir.numpy_dtype(e.dtype))[()]


def _tile(name: str, e: ir.CallIntrin, s: _State) -> int:
    """Run an operation on matrix tiles; the address of an element stands for bytes of its buffer."""
    if name not in ("load", "store"):
        args = [s.expr(a) for a in e.args]
        getattr(s.tiles, name)(*(a if isinstance(a, str) else int(a) for a in args))
        return 0
    place = e.args[1].args[0] if isinstance(e.args[1], ir.CallIntrin) else None
    if not isinstance(place, BufferLoad):
        raise LoweringError(f"tile_{name} needs the address of an element", where=e.span, found=str(e.args[1]))
    memory = s.memory[place.buffer.data]
    start = int(s.offset(place.buffer, place.indices)) * memory.itemsize
    getattr(s.tiles, name)(int(s.expr(e.args[0])), memory.view(np.uint8), start, int(s.expr(e.args[2])))
    return 0


@_STMT.on(stmts.Prefetch)
def _prefetch(node: stmts.Prefetch, s: _State) -> None:
    """A hint, which computes nothing."""


@_STMT.on(stmts.SeqStmt)
def _seq(node: stmts.SeqStmt, s: _State) -> None:
    for x in node.seq:
        s.stmt(x)


@_STMT.on(stmts.BufferStore)
def _store(node: stmts.BufferStore, s: _State) -> None:
    memory, offset, value = s.memory[node.buffer.data], s.offset(node.buffer, node.indices), s.expr(node.value)
    if node.predicate is not None:
        mask = np.broadcast_to(s.expr(node.predicate), np.shape(offset))
        offset, value = offset[mask], np.broadcast_to(value, mask.shape)[mask]
    _at(memory, offset, node.buffer)
    memory[offset] = value


@_STMT.on(stmts.For)
def _for(node: stmts.For, s: _State) -> None:
    low, dtype = int(s.expr(node.min)), ir.numpy_dtype(node.loop_var.dtype).type
    for extents, init in s.inits.get(node, ()):
        if any(s.expr(e) == 0 for e in extents):
            s.stmt(init)
    for i in range(low, low + int(s.expr(node.extent))):
        s.env[node.loop_var] = dtype(i)
        if not s.once(node.body):
            break


@_STMT.on(stmts.While)
def _while(node: stmts.While, s: _State) -> None:
    while s.expr(node.condition) and s.once(node.body):
        pass


@_STMT.on(stmts.IfThenElse)
def _if(node: stmts.IfThenElse, s: _State) -> None:
    if s.expr(node.condition):
        s.stmt(node.then_case)
    elif node.else_case is not None:
        s.stmt(node.else_case)


@_STMT.on(stmts.LetStmt)
def _let_stmt(node: stmts.LetStmt, s: _State) -> None:
    s.env[node.var] = s.expr(node.value)
    s.stmt(node.body)


@_STMT.on(stmts.AllocBuffer)
def _alloc(node: stmts.AllocBuffer, s: _State) -> None:
    s.allocate(node.buffer)
    s.stmt(node.body)


@_STMT.on(stmts.AttrStmt, stmts.DeclBuffer)
def _wrapper(node: Any, s: _State) -> None:
    s.stmt(node.body)


@_STMT.on(stmts.AssertStmt)
def _assert(node: stmts.AssertStmt, s: _State) -> None:
    if not s.expr(node.condition):
        raise (IndexError if node.error_kind == "IndexError" else InvalidArgument)(str(s.expr(node.message)))
    s.stmt(node.body)


@_STMT.on(stmts.Evaluate)
def _evaluate(node: stmts.Evaluate, s: _State) -> None:
    s.expr(node.value)


@_STMT.on(stmts.BlockRealize)
def _block(node: stmts.BlockRealize, s: _State) -> None:
    block = node.block
    body, init = (
        part if part is None else lower_match_buffers(part, block.match_buffers, block.span, s.env)
        for part in (block.body, block.init)
    )
    if body is not block.body:
        s.note_inits(body)  # type: ignore[arg-type]
    values = [s.expr(v) for v in node.iter_values]
    for iv, v in zip(block.iter_vars, values, strict=True):
        s.env[iv.var] = v
    if not s.expr(node.predicate):
        return
    for buffer in block.alloc_buffers:
        s.allocate(buffer)
    if init is not None:
        reduce = [(iv, v) for iv, v in zip(block.iter_vars, values, strict=True) if iv.iter_type == "reduce"]
        if all(v == s.expr(iv.dom.min) for iv, v in reduce):  # type: ignore[union-attr]
            s.stmt(init)
    s.stmt(body)
