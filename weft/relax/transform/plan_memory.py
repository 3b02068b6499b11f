"""StaticPlanBlockMemory: tensors whose lives do not overlap share storage.

Element-wise results take over a dying operand's.

Sizes may be symbolic: storage is reused when the sizes are provably equal. What leaves the function (results, arguments
of opaque calls) is never planned, so it is always fresh.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from weft import arith, ir, tir
from weft.arith.context import structural_key
from weft.relax.core_ops import alloc_storage, is_op, storage_tensor
from weft.relax.expr import BindingBlock, MatchCast, SeqExpr, Var, VarBinding
from weft.relax.infer import typed_call
from weft.relax.rename import variables


@ir.function_pass(kind=ir.Function, name="StaticPlanBlockMemory", opt_level=0, ensures="relax.planned")
def plan_memory(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Turn ``builtin.alloc_tensor`` of values that stay inside the function into shared ``memory.alloc_storage``.

    Requires: Plain blocks after CallTIRRewrite.
    Ensures: ``relax.planned``.
    Before::

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")):
            a = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", runtime_device_index=0)
            _ = cls.exp(x, a)
            b = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", runtime_device_index=0)
            _1 = cls.exp(a, b)
            c = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", runtime_device_index=0)
            _2 = cls.exp(b, c)
            d = R.builtin.alloc_tensor(R.shape([4]), dtype="float32", runtime_device_index=0)
            _3 = cls.exp(c, d)
            return d

        @T.prim_func
        def exp(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.exp(A[i])

    After::

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            storage = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            _ = cls.exp(x, a)
            storage_1 = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            b = R.memory.alloc_tensor(storage_1, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            _1 = cls.exp(a, b)
            c = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            _2 = cls.exp(b, c)
            d = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _3 = cls.exp(c, d)
            return d

        @T.prim_func
        def exp(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.exp(A[i])
    Cost: Linear in bindings times live storage blocks.
    Source: TVM's ``StaticPlanBlockMemory``; best fit as in Pisarchyk and Lee, 2020.
    """
    if not isinstance(func.body, SeqExpr) or len(func.body.blocks) != 1:
        return func
    plan = _Plan(func.body, mod)
    return func.replace(body=plan.rewrite()) if plan.token_of else func


class _Token:
    """One storage block: its size in bytes, its device's place, and the variable that holds it."""

    __slots__ = ("device", "size", "var")

    def __init__(self, size: ir.PrimExpr, device: int) -> None:
        self.size, self.device = size, device
        self.var: Var | None = None


def device_of(alloc: ir.Expr) -> int:
    """Return the place of the device that a tensor is allocated on."""
    assert isinstance(alloc, ir.Call)
    place: Any = alloc.args[2]
    return place.value.value


def size_in_bytes(shape: ir.ShapeExpr, dtype: str) -> ir.PrimExpr:
    """Return the size of a compact tensor in bytes, rounded up to 64 where it is constant."""
    size: ir.PrimExpr = ir.int64(ir.DataType(dtype).itemsize)
    for d in shape.values:
        size = size * d
    return ir.int64(-(-size.value // 64) * 64) if isinstance(size, ir.IntImm) else size


class _Plan:
    def __init__(self, seq: SeqExpr, mod: ir.IRModule) -> None:
        self.seq, self.mod = seq, mod
        self.bindings = seq.blocks[0].bindings
        self.analyzer = arith.Analyzer()
        self.roots: dict[ir.Expr, tuple[ir.Expr, ...]] = {}
        self.allocs: dict[ir.Expr, ir.Call] = {
            b.var: b.value
            for b in self.bindings
            if is_op(b.value, "builtin.alloc_tensor") and isinstance(b.value.args[0], ir.ShapeExpr)
        }
        self.last_use, escaping = self._liveness()
        self.planned = {v for v in self.allocs if v not in escaping}
        self.token_of: dict[ir.Expr, _Token] = {}
        self.sizes: dict[Hashable, ir.PrimExpr] = {}
        self._assign()

    def _root(self, var: Var) -> tuple[ir.Expr, ...]:
        """The allocations that a variable may alias."""
        return self.roots.get(var, (var,) if var in self.allocs else ())

    def _liveness(self) -> tuple[dict[ir.Expr, int], set[ir.Expr]]:
        last: dict[ir.Expr, int] = {}
        escaping: set[ir.Expr] = set()
        for i, b in enumerate(self.bindings):
            used = [r for v in variables(b.value) for r in self._root(v)]
            for r in used:
                last[r] = i
            if (
                isinstance(b, MatchCast)
                or is_op(b.value, "reshape")
                or isinstance(b.value, (ir.ExprVar, ir.Tuple, ir.TupleGetItem))
            ):
                self.roots[b.var] = tuple(dict.fromkeys(used))
            elif not self._is_kernel(b.value):
                escaping.update(used)
        for v in variables(self.seq.body):
            escaping.update(self._root(v))
        return last, escaping

    def _is_kernel(self, value: ir.Expr) -> bool:
        """Whether a call reads and writes its tensors and keeps none of them."""
        if not isinstance(value, ir.Call):
            return False
        if isinstance(value.op, ir.GlobalVar):
            return value.op in self.mod and isinstance(self.mod[value.op], tir.PrimFunc)
        return isinstance(value.op, ir.Op) and value.op.name in (
            "relax.vm.call_tir_dyn",
            "relax.shape_of",
            "relax.builtin.alloc_tensor",
        )

    def _assign(self) -> None:
        free: list[_Token] = []
        dying: dict[int, list[_Token]] = {}
        for i, b in enumerate(self.bindings):
            if b.var in self.planned:
                alloc = self.allocs[b.var]
                size = self._known(size_in_bytes(alloc.args[0], alloc.args[1].value))  # type: ignore[attr-defined]
                end = self.last_use.get(b.var, i)
                token = self._take_over(i, b.var, size, dying) or self._pick(free, size, device_of(alloc))
                self.token_of[b.var] = token
                dying.setdefault(end, []).append(token)
            free.extend(dying.pop(i, ()))

    def _take_over(self, i: int, out: ir.Expr, size: ir.PrimExpr, dying: dict[int, list[_Token]]) -> _Token | None:
        """Find an operand that dies at the kernel which fills `out` and whose storage the result may take over."""
        for j in range(i + 1, min(i + 3, len(self.bindings))):
            value = self.bindings[j].value
            if self._is_kernel(value) and isinstance(value, ir.Call) and any(a is out for a in value.args):
                func = self.mod[value.op] if isinstance(value.op, ir.GlobalVar) else None
                for k in (func.attrs.get("inplace_inputs") or ()) if isinstance(func, tir.PrimFunc) else ():
                    roots = self._root(value.args[k])
                    if len(roots) != 1 or self.last_use.get(roots[0]) != j or roots[0] not in self.token_of:
                        continue
                    token = self.token_of[roots[0]]
                    same = token.device == device_of(self.allocs[out])
                    if same and token in dying.get(j, ()) and self._fits(token.size, size):
                        dying[j].remove(token)
                        return token
                return None
        return None

    def _known(self, size: ir.PrimExpr) -> ir.PrimExpr:
        """The first size that is known to be equal: what is not known is asked once, not of each free block."""
        key = structural_key(size)
        if key not in self.sizes and not isinstance(size, ir.IntImm):
            others = dict.fromkeys(self.sizes.values())
            self.sizes[key] = next((s for s in others if self.analyzer.can_prove_equal(s, size)), size)
        return self.sizes.get(key, size)

    def _fits(self, have: ir.PrimExpr, need: ir.PrimExpr) -> bool:
        if isinstance(have, ir.IntImm) and isinstance(need, ir.IntImm):
            return have.value >= need.value
        return have is need

    def _pick(self, free: list[_Token], size: ir.PrimExpr, device: int) -> _Token:
        here = [t for t in free if t.device == device]
        if isinstance(size, ir.IntImm):
            constant: list[Any] = [t for t in here if isinstance(t.size, ir.IntImm)]
            enough = [t for t in constant if t.size.value >= size.value]  # type: ignore[attr-defined]
            smallest = min(enough, key=lambda t: t.size.value, default=None)
            best = smallest or max(constant, key=lambda t: t.size.value, default=None)
            if best is not None and best.size.value <= 16 * size.value + 4096:  # type: ignore[attr-defined]
                free.remove(best)
                best.size = ir.int64(max(best.size.value, size.value))  # type: ignore[attr-defined]
                return best
        else:
            for t in here:
                if not isinstance(t.size, ir.IntImm) and self._fits(t.size, size):
                    free.remove(t)
                    return t
        return _Token(size, device)

    def rewrite(self) -> SeqExpr:
        """Emit a storage block at its first use and each planned tensor inside its block."""
        out: list[Any] = []
        for b in self.bindings:
            token = self.token_of.get(b.var)
            if token is None:
                out.append(b)
                continue
            if token.var is None:
                call = typed_call(alloc_storage(ir.shape_expr((token.size,)), token.device))
                token.var = Var("storage", call.ty)
                out.append(VarBinding(token.var, call))
            alloc = self.allocs[b.var]
            tensor = typed_call(storage_tensor(token.var, 0, alloc.args[0], alloc.args[1].value))  # type: ignore[attr-defined]
            out.append(VarBinding(b.var, tensor, span=b.span))
        return SeqExpr((BindingBlock(tuple(out)),), self.seq.body, span=self.seq.span, ty=self.seq.ty)
