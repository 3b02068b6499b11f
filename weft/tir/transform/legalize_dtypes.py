"""BF16 and FP8 on targets without them: ComputeLegalize computes in a wider type, StorageLegalize stores their bits."""

from collections.abc import Callable
from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.spelling import also_called
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer, BufferLoad, MatchBufferRegion
from weft.tir.float8 import float8_to_float32, float32_to_float8
from weft.tir.function import PrimFunc
from weft.tir.reduce import CommReducer
from weft.tir.stmt import AllocBuffer, Block, BufferStore, DeclBuffer, LetStmt

_AS_WRITTEN = ("tir.call_", "tir.tvm_call_", "tir.reinterpret")
"""Calls whose operands and results keep their types: what is called elsewhere does not change."""


def _is_bf16(dtype: str) -> bool:
    return ir.DataType(dtype).code == "bfloat"


def _is_fp8(dtype: str) -> bool:
    known = ir.DataType(dtype)
    return known.is_float and known.bits == 8


def _bits(dtype: str, value: ir.PrimExpr) -> ir.PrimExpr:
    """Return a value's bits as another type."""
    return value if value.dtype == dtype else ir.CallIntrin(dtype, ir.Op.get("tir.reinterpret"), (value,))


def _scalar(value: ir.PrimExpr) -> ir.PrimExpr:
    if ir.DataType(value.dtype).lanes > 1:
        raise LoweringError(
            "floats of 8 bits are legalized one by one",
            expected="one lane",
            found=value.dtype,
            help="run the pass before loops are vectorized",
        )
    return value


def _widen(value: ir.PrimExpr, wide: str) -> ir.PrimExpr:
    lanes = ir.DataType(value.dtype).lanes
    half, whole, result = (ir.with_lanes(t, lanes) for t in ("uint16", "uint32", wide))
    if _is_fp8(value.dtype):
        return ir.cast(wide, float8_to_float32(_scalar(value)))
    return _bits(result, ir.cast(whole, _bits(half, value)) << ir.const(16, whole))


def _narrow(value: ir.PrimExpr, dtype: str) -> ir.PrimExpr:
    """Round to the nearest, of two to the even one."""
    if _is_fp8(dtype):
        once = ir.Var("value", "float32")
        return ir.Let(once, ir.cast("float32", _scalar(value)), float32_to_float8(once, dtype))
    lanes = ir.DataType(dtype).lanes
    half, whole = (ir.with_lanes(t, lanes) for t in ("uint16", "uint32"))
    bits = _bits(whole, ir.cast(ir.with_lanes("float32", lanes), value))
    bias = ((bits >> ir.const(16, whole)) & ir.const(1, whole)) + ir.const(0x7FFF, whole)
    return _bits(dtype, ir.cast(half, (bits + bias) >> ir.const(16, whole)))


class RewriteOnce:
    """Rewrites each node of a function once; subclasses say how variables, buffers and expressions change."""

    def __init__(self) -> None:
        self.memo: dict[Any, Any] = {}

    def visit(self, node: Any) -> Any:
        """Rewrite a node; one that is met again becomes the same."""
        if not isinstance(node, ir.Node):
            return node
        known = self.memo.get(node)
        if known is None:
            known = self.memo[node] = self.rewrite(node)
        return known

    def rewrite(self, node: ir.Node) -> Any:
        """Return what a node becomes."""
        raise NotImplementedError

    def run(self, func: PrimFunc) -> PrimFunc:
        """Rewrite body, parameters and buffers."""
        body = self.visit(func.body)
        params = tuple(self.visit(p) for p in func.params)
        buffers = tuple((self.visit(p), self.visit(b)) for p, b in func.buffer_map)
        same = body is func.body and all(a is b for a, b in zip(params, func.params, strict=True))
        same = same and all(new[1] is old[1] for new, old in zip(buffers, func.buffer_map, strict=True))
        return func if same else func.replace(body=body, params=params, buffer_map=buffers)


class _Compute(RewriteOnce):
    """Operands and results become wide, and with them buffers inside that only loads and stores touch."""

    def __init__(self, narrow: Callable[[str], bool], wide: str, body: Any) -> None:
        super().__init__()
        self.narrow, self.wide = narrow, wide
        inside: list[Buffer] = []
        views: list[tuple[Buffer, Buffer]] = []
        opaque: set[ir.Var] = set()
        for n in ir.walk(body):
            if isinstance(n, AllocBuffer):
                inside.append(n.buffer)
            elif isinstance(n, Block):
                inside.extend(n.alloc_buffers)
            elif isinstance(n, DeclBuffer):
                views.append((n.buffer, n.buffer))
            elif isinstance(n, MatchBufferRegion):
                views.append((n.buffer, n.source.buffer))
            if isinstance(n, ir.PrimExpr) and not isinstance(n, BufferLoad):
                opaque.update(c for c in ir.children(n) if isinstance(c, ir.Var))
        opaque.update(b.data for b, _ in views)  # two names of one memory keep its type
        opaque.update(source.data for _, source in views)
        for b in inside:
            if narrow(b.dtype) and b.data not in opaque:
                self.memo[b] = replace_node(b, dtype=self.widened(b.dtype))

    def widened(self, dtype: str) -> str:
        return ir.with_lanes(self.wide, ir.DataType(dtype).lanes)

    def wide_value(self, expr: ir.PrimExpr) -> Any:
        new = self.visit(expr)
        return _widen(new, self.wide) if isinstance(new, ir.PrimExpr) and self.narrow(new.dtype) else new

    def retyped(self, var: ir.Var, value: ir.PrimExpr) -> ir.Var:
        """Let a variable have the type of what it is bound to."""
        if var.dtype != value.dtype:
            self.memo[var] = replace_node(var, dtype=value.dtype)
        return self.visit(var)

    def rewrite(self, node: ir.Node) -> Any:
        if isinstance(node, (ir.Var, Buffer)):
            return node
        if isinstance(node, ir.FloatImm):
            return replace_node(node, dtype=self.widened(node.dtype)) if self.narrow(node.dtype) else node
        if isinstance(node, BufferStore):
            new = ir.rebuild(node, self.visit)
            value, kept = new.value, self.narrow(new.buffer.dtype)
            if kept and not self.narrow(value.dtype):
                value = _narrow(value, ir.with_lanes(new.buffer.dtype, ir.DataType(value.dtype).lanes))
            elif not kept and self.narrow(value.dtype):
                value = _widen(value, self.wide)
            return replace_node(new, value=value) if value is not new.value else new
        if isinstance(node, (ir.Let, LetStmt)):
            value = self.wide_value(node.value)
            var = self.retyped(node.var, value)
            return ir.with_fields(node, var=var, value=value, body=self.visit(node.body))
        if isinstance(node, CommReducer):
            identity = tuple(self.wide_value(e) for e in node.identity_element)
            for var, value in zip((*node.lhs, *node.rhs), identity * 2, strict=True):
                self.retyped(var, value)
            return ir.rebuild(node, self.wide_value)
        if not isinstance(node, ir.PrimExpr) or isinstance(node, BufferLoad):
            return ir.rebuild(node, self.visit)
        return self.expression(node)

    def expression(self, node: ir.Node) -> Any:
        if isinstance(node, ir.CallIntrin) and node.op.name.startswith(_AS_WRITTEN):
            return ir.rebuild(node, lambda c: self.same_type(c, self.visit(c)))
        if isinstance(node, ir.Cast):
            value = self.wide_value(node.value)
            target = self.widened(node.dtype) if self.narrow(node.dtype) else node.dtype
            return node if value is node.value and target == node.dtype else ir.cast(target, value)
        new = ir.rebuild(node, self.wide_value)
        if isinstance(node, ir.CallIntrin) and self.narrow(node.dtype):
            return replace_node(new, dtype=self.widened(node.dtype))
        return new

    def same_type(self, old: Any, new: Any) -> Any:
        if isinstance(old, ir.PrimExpr) and self.narrow(old.dtype) and not self.narrow(new.dtype):
            return _narrow(new, old.dtype)
        return new


class _Storage(RewriteOnce):
    """Variables and buffers hold the bits; what computes with a value takes them for it again."""

    def __init__(self, narrow: Callable[[str], bool]) -> None:
        super().__init__()
        self.narrow = narrow

    def stored(self, dtype: str) -> str:
        known = ir.DataType(dtype)
        return ir.with_lanes(f"uint{known.bits}", known.lanes)

    def rewrite(self, node: ir.Node) -> Any:
        if isinstance(node, ir.Var):
            pointed = getattr(node.dtype, "ty", None)
            if isinstance(pointed, ir.PointerType) and isinstance(pointed.element_type, ir.PrimType):
                element = pointed.element_type.dtype
                if not self.narrow(element):
                    return node
                element = ir.PrimType(self.stored(element))
                return replace_node(node, dtype=ir.HandleType(ir.PointerType(element, pointed.storage_scope)))
            return replace_node(node, dtype=self.stored(node.dtype)) if self.narrow(node.dtype) else node
        if isinstance(node, Buffer):
            new = ir.rebuild(node, self.visit)
            return replace_node(new, dtype=self.stored(node.dtype)) if self.narrow(node.dtype) else new
        if not isinstance(node, ir.PrimExpr) or isinstance(node, BufferLoad):
            return ir.rebuild(node, self.visit)
        if isinstance(node, ir.CallIntrin) and node.op.name == "tir.reinterpret":
            value = self.visit(node.args[0])
            return _bits(self.stored(node.dtype) if self.narrow(node.dtype) else node.dtype, value)
        new = ir.rebuild(node, lambda c: self.value(c) if isinstance(c, ir.PrimExpr) else self.visit(c))
        return _bits(self.stored(new.dtype), new) if self.narrow(new.dtype) else new

    def value(self, expr: ir.PrimExpr) -> Any:
        new = self.visit(expr)
        return _bits(expr.dtype, new) if self.narrow(expr.dtype) and new is not expr else new


_BITS_ONLY = ("tir.reinterpret", "tir.if_then_else", "tir.address_of", "tir.tvm_access_ptr")


def _rounded_float8(node: ir.Node) -> Any:
    if isinstance(node, ir.FloatImm):
        return _narrow(ir.const(node.value, "float32"), node.dtype) if _is_fp8(node.dtype) else node
    if not isinstance(node, ir.PrimExpr) or isinstance(node, (BufferLoad, ir.Var, ir.Select, ir.Let)):
        return node
    if isinstance(node, ir.CallIntrin) and node.op.name.startswith((*_AS_WRITTEN, *_BITS_ONLY)):
        return node
    given = [c for c in ir.children(node) if isinstance(c, ir.PrimExpr)]
    if not (isinstance(node, ir.Cast) and _is_fp8(node.dtype)) and not any(_is_fp8(c.dtype) for c in given):
        return node
    if isinstance(node, ir.Cast):
        value = _wide_once(node.value)
        return _narrow(value, node.dtype) if _is_fp8(node.dtype) else ir.cast(node.dtype, value)
    new = ir.rebuild(node, _wide_once)
    if not _is_fp8(node.dtype):
        return new
    return _narrow(replace_node(new, dtype="float32") if isinstance(new, ir.CallIntrin) else new, node.dtype)


def _wide_once(value: Any) -> Any:
    """Return a value in float32 where it is a float of 8 bits; it is computed once."""
    if not isinstance(value, ir.PrimExpr) or not _is_fp8(value.dtype):
        return value
    once = ir.Var("code", value.dtype)
    return ir.Let(once, _scalar(value), float8_to_float32(once))


def _supports(func: PrimFunc, sm: int) -> bool:
    """Whether the function's target computes in the type itself: a CUDA device from an architecture on."""
    target = func.attrs.get("target")
    arch = str(getattr(target, "arch", "")) if getattr(target, "kind", None) is not None else ""
    return arch.startswith("sm_") and int("".join(c for c in arch[3:] if c.isdigit()) or 0) >= sm


@ir.function_pass(kind=PrimFunc, name="BF16ComputeLegalize")
def bf16_compute_legalize(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Compute in float32 what is written in bfloat16; buffers inside the function become float32, parameters stay.

    Requires: Any form.
    Ensures: The same form. Values in between are not rounded to bfloat16. A NaN is one afterwards where its upper half
        says so, as of all NaNs that are computed.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "bfloat16"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.Cast("float32", A[i])

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "bfloat16"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.reinterpret(
                    "float32", T.shift_left(T.Cast("uint32", T.reinterpret("uint16", A[i])), T.uint32(16))
                )
    Cost: Linear.
    Source: TVM's ``BF16ComputeLegalize``.
    """
    return func if _supports(func, 80) else _Compute(_is_bf16, "float32", func.body).run(func)


@ir.function_pass(kind=PrimFunc, name="BF16StorageLegalize")
def bf16_storage_legalize(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Store bfloat16 as its bits, in uint16.

    Requires: Any form.
    Ensures: The same form, in which no buffer, variable or pointer is of bfloat16.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "bfloat16"), B: T.Buffer((4,), "bfloat16")):
            for i in range(4):
                B[i] = A[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "uint16"), B: T.Buffer((4,), "uint16")):
            for i in range(4):
                B[i] = A[i]
    Cost: Linear.
    Source: TVM's ``BF16StorageLegalize``.
    """
    return func if _supports(func, 80) else _Storage(_is_bf16).run(func)


@ir.function_pass(kind=PrimFunc, name="FP8ComputeLegalize")
@also_called(promote_dtype_str="promote_dtype")
def fp8_compute_legalize(
    func: PrimFunc, mod: ir.IRModule, promote_dtype: str = "float16", *, rounded: bool = False
) -> PrimFunc:
    """Compute in `promote_dtype` what is written in a float of 8 bits; conversions work on bits and are right for all.

    Options:
        ``rounded``: compute in float32 and round each result to 8 bits, as the program says; buffers keep their types.

    Requires: Any form.
    Ensures: The same form. Values in between are not rounded to 8 bits, unless `rounded`.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "float8_e4m3fn"), B: T.Buffer((4,), "float8_e4m3fn")):
            kept = T.alloc_buffer((4,), "float8_e4m3fn")
            for i in range(4):
                kept[i] = kept[i] + kept[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "float8_e4m3fn"), B: T.Buffer((4,), "float8_e4m3fn")):
            kept = T.alloc_buffer((4,), "float16")
            for i in range(4):
                kept[i] = kept[i] + kept[i]
    Cost: Linear.
    Source: TVM's ``FP8ComputeLegalize``.
    """
    if _supports(func, 89):
        return func
    if rounded:
        typed = ir.find(func, Buffer, ir.CallIntrin, ir.Cast, ir.FloatImm, ir.Var)  # other types follow from theirs
        needed = any(map(_is_fp8, {n.dtype for n in typed}))
        return func.replace(body=ir.rewrite(func.body, _rounded_float8)) if needed else func
    return _Compute(_is_fp8, promote_dtype, func.body).run(func)


@ir.function_pass(kind=PrimFunc, name="FP8StorageLegalize")
def fp8_storage_legalize(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Store floats of 8 bits as these, in uint8.

    Requires: Any form.
    Ensures: The same form, in which no buffer, variable or pointer is of a float of 8 bits.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "float8_e5m2"), B: T.Buffer((4,), "float8_e5m2")):
            for i in range(4):
                B[i] = A[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "uint8"), B: T.Buffer((4,), "uint8")):
            for i in range(4):
                B[i] = A[i]
    Cost: Linear.
    Source: TVM's ``FP8StorageLegalize``.
    """
    return func if _supports(func, 89) else _Storage(_is_fp8).run(func)
