"""StaticPlanBlockMemory: tensors of one data type whose lives do not overlap share storage, block by block.

Every tensor that ``builtin.alloc_tensor`` makes has a token that counts its uses. What leaves its block (results, the
arguments of functions that may keep them) is not planned. The default pipeline plans whole functions, and lets kernels
write over their operands (``plan_memory``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from weft import arith, error, ir, tir
from weft.relax.analysis import tir_vars_in_type
from weft.relax.core_ops import alloc_storage, is_op, storage_tensor
from weft.relax.expr import Binding, MatchCast, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type, typed_call
from weft.relax.rename import replace_value, with_sequences
from weft.relax.transform.block_pass import over_functions

UPPER, LOWER, _OUTPUTS = "tir_var_upper_bound", "tir_var_lower_bound", "relax.memory_plan_dynamic_func_output"
_VIEWS = ("relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset")
_RANGE = 16  # storage is taken over for sizes up to so many times its own, either way


def StaticPlanBlockMemory() -> ir.Pass:
    """Make the pass that lets tensors share storage (``memory.alloc_storage``) where their lives allow it.

    A function's attribute ``tir_var_upper_bound`` gives symbolic variables of its signature their greatest values, by
    which sizes are known; ``tir_var_lower_bound`` and ``tir_non_negative_var`` help to compare sizes. With
    ``relax.memory_plan_dynamic_func_output``, results get storage of such a size, too.
    """
    return over_functions(StaticPlanBlockMemory, _planned)


def _planned(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    sizes = KnownSizes(func)
    uses = _Uses(mod, sizes)
    uses.discard(uses.tree(func.body))
    places = _Places(uses, sizes.analyzer)
    places.seq(func.body)
    outputs = sizes if func.attrs.get(_OUTPUTS) else None
    body = _Rewrite(places.taken, outputs).seq(func.body)
    if outputs is not None:
        return func.replace(body=body).without_attr(_OUTPUTS)
    return func.replace(body=body)


class KnownSizes:
    """What a function says of the symbolic sizes in its signature."""

    def __init__(self, func: ir.Function) -> None:
        self.analyzer, self.domains = arith.Analyzer(), {}
        upper, lower = (declared_bounds(func, key) for key in (UPPER, LOWER))
        positive: set[str] = set(func.attrs.get("tir_non_negative_var") or ())
        for v in tir_vars_in_type(function_type(func)):
            low = lower.get(v.name)
            if v.name in upper:
                start = low or 0
                extent = upper[v.name] - start + 1
                dom = ir.Range.from_min_extent(ir.const(start, v.dtype), ir.const(extent, v.dtype))
                self.analyzer.bind(v, dom)
                self.domains[v] = dom
            elif v.name in positive or (low is not None and low >= 0):
                self.analyzer.mark_global_non_neg(v)

    def largest(self, shape: Any) -> list[Any]:
        """Return the greatest values of dimensions, and those that have none as they are."""
        return [self._largest(d) for d in shape]

    def _largest(self, d: Any) -> Any:
        if isinstance(d, ir.IntImm):
            return d
        bound = self.analyzer.const_int_bound(d).max_value
        if bound < (1 << 62):
            return ir.const(bound, d.dtype)
        ends = {v: dom.min + dom.extent - 1 for v, dom in self.domains.items()}
        if not any(v in ends for v in ir.walk(d)):
            return d
        within = self.analyzer.int_set(d, self.domains)
        if not within.has_upper_bound:
            return d
        plain = ir.rewrite(ir.substitute(d, ends), _factor_last)
        return plain if self.analyzer.can_prove_equal(plain, within.max_value) else within.max_value


def _factor_last(e: Any) -> Any:
    is_first = isinstance(e, ir.Mul) and isinstance(e.a, ir.IntImm) and not isinstance(e.b, ir.IntImm)
    return ir.Mul(e.b, e.a) if is_first else e


def declared_bounds(func: ir.Function, key: str) -> dict[str, int]:
    """The least or the greatest values that an attribute of a function gives its variables, by their names."""
    given = func.attrs.get(key)
    found = {} if given is None else dict(given.items)
    for name, value in found.items():
        plain = getattr(value, "value", value)
        if not isinstance(plain, int) or isinstance(plain, bool):
            raise error.InvalidArgument(
                f"{key}: the bound of '{name}' is no integer", expected="int", found=repr(value)
            )
        found[name] = plain
    return found


class _Token:
    """The storage of a tensor: its size in bytes, where and of what type it is, and who still needs it."""

    __slots__ = ("block", "bytes", "discarded", "dtype", "key", "uses", "var")

    def __init__(self, alloc: Any, shape: list[Any], block: Any) -> None:
        self.dtype = alloc.args[1].value
        size: Any = ir.int64(1)
        constant = ir.DataType(self.dtype).itemsize
        for d in shape:
            if isinstance(d, ir.IntImm):
                constant *= d.value
            else:
                size = size * d
        self.bytes: Any = ir.int64(constant) * size
        self.key = (alloc.args[3].value, self.dtype, ir.as_int(alloc.args[2].value))
        self.block, self.uses, self.discarded = block, 0, False
        self.var: Any = None


def _leaves(tree: Any) -> Iterator[_Token]:
    if isinstance(tree, tuple):
        for t in tree:
            yield from _leaves(t)
    elif tree is not None and not tree.discarded:
        yield tree


class _Walk:
    """The tokens of each value: None, a token, or a tuple of such, for tuples."""

    def __init__(self) -> None:
        self.trees: dict[Any, Any] = {}
        self.blocks: list[Any] = []

    def tree(self, expr: ir.Expr) -> Any:
        """Return the tokens of an operand."""
        if isinstance(expr, ir.Tuple):
            return tuple(self.tree(f) for f in expr.fields)
        if isinstance(expr, ir.TupleGetItem):
            whole = self.tree(expr.tuple_value)
            return whole[expr.index] if isinstance(whole, tuple) else None
        if isinstance(expr, SeqExpr):
            return self.seq(expr)
        return self.trees.get(expr)

    def seq(self, seq: Any) -> Any:
        """Go through the blocks of a sequence and return the tokens of its result."""
        if not isinstance(seq, SeqExpr):
            return self.tree(seq)
        for block in seq.blocks:
            self.blocks.append(block)
            for b in block.bindings:
                self.trees[b.var] = self.binding(b)
            self.blocks.pop()
        return self.tree(seq.body)

    def binding(self, b: Binding) -> Any:
        """Return the tokens of what is bound."""
        raise NotImplementedError


class _Uses(_Walk):
    """Counts uses, and discards the tokens of what leaves its block."""

    def __init__(self, mod: ir.IRModule, sizes: KnownSizes) -> None:
        super().__init__()
        self.mod, self.sizes = mod, sizes
        self.made: dict[Any, _Token] = {}

    def discard(self, tree: Any) -> None:
        """Leave what a tree holds out of the plan."""
        for token in _leaves(tree):
            token.discarded = True

    def binding(self, b: Binding) -> Any:
        value = b.value
        if isinstance(b, MatchCast):
            self.discard(self.tree(value))
        elif isinstance(value, ir.If):
            for part in (value.cond, value.true_branch, value.false_branch):
                self.discard(self.tree(part))
        elif isinstance(value, SeqExpr):
            self.discard(self.tree(value))
        elif not isinstance(value, ir.Call):
            return self.tree(value)
        elif is_op(value, "builtin.alloc_tensor") and isinstance(value.args[0], ir.ShapeExpr):
            token = self.made[b.var] = _Token(value, self.sizes.largest(value.args[0].values), self.blocks[-1])
            return token
        elif isinstance(value.op, ir.Op) and value.op.name in _VIEWS:
            return self.tree(value.args[0])
        elif self.reads(value):
            for token in _leaves(self.tree(ir.Tuple(value.args))):
                token.uses += 1
                token.discarded = token.block is not self.blocks[-1]
        else:
            self.discard(self.tree(ir.Tuple(value.args)))
        return None

    def reads(self, call: ir.Call) -> bool:
        """Whether a call keeps none of its arguments."""
        if isinstance(call.op, ir.GlobalVar):
            return call.op in self.mod and isinstance(self.mod[call.op], tir.PrimFunc)
        return isinstance(call.op, ir.ExternFunc) or is_op(call, "vm.call_tir_dyn")


class _Places(_Walk):
    """Gives each token storage: its own, or that of one that nobody needs any more."""

    def __init__(self, uses: _Uses, analyzer: arith.Analyzer) -> None:
        super().__init__()
        self.uses, self.analyzer = uses, analyzer
        self.free: dict[Any, list[_Token]] = {}
        self.taken: dict[Any, _Token] = {}

    def binding(self, b: Binding) -> Any:
        value = b.value
        if isinstance(b, MatchCast) or not isinstance(value, ir.Call):
            if isinstance(value, ir.If):
                self.seq(value.true_branch)
                self.seq(value.false_branch)
                return None
            return None if isinstance(b, MatchCast) else self.tree(value)
        token = self.uses.made.get(b.var)
        if token is not None:
            if token.discarded:
                return None
            self.taken[b.var] = chosen = self.request(token)
            return chosen
        if isinstance(value.op, ir.Op) and value.op.name in _VIEWS:
            return self.tree(value.args[0])
        for used in list(_leaves(self.tree(ir.Tuple(value.args)))):
            used.uses -= 1
            if used.uses == 0:
                self.free.setdefault(used.key, []).append(used)
        return None

    def request(self, token: _Token) -> _Token:
        """Return the storage for a token, which takes over the uses."""
        pool = self.free.get(token.key, [])
        found = self.find(token, pool) if token.uses else None
        if found is None:
            return token
        pool.remove(found)
        found.uses = token.uses
        return found

    def find(self, token: _Token, pool: list[_Token]) -> _Token | None:
        """Find storage of the least size that is enough, else the largest, which grows."""
        need = ir.as_int(token.bytes)
        if need is None:
            same: Callable[[Any], bool] = lambda t: (  # noqa: E731
                ir.as_int(t.bytes) is None and self.analyzer.can_prove_equal(t.bytes, token.bytes)
            )
            return next(filter(same, pool), None)
        sized = [(ir.as_int(t.bytes), t) for t in pool if ir.as_int(t.bytes) is not None]
        near = [(n, t) for n, t in sized if need // _RANGE <= n <= need * _RANGE]  # type: ignore[operator]
        enough = [(n, t) for n, t in near if n >= need]  # type: ignore[operator]
        if enough:
            return min(enough, key=lambda x: x[0])[1]  # type: ignore[arg-type,return-value]
        if not near:
            return None
        best = max(reversed(near), key=lambda x: x[0])[1]  # type: ignore[arg-type,return-value]
        best.bytes = ir.int64(need)
        return best


class _Rewrite:
    """Puts tensors into the storage that was found for them."""

    def __init__(self, taken: dict[Any, _Token], outputs: KnownSizes | None) -> None:
        self.taken, self.outputs = taken, outputs

    def seq(self, seq: Any) -> Any:
        """Rewrite a sequence; itself where nothing is planned."""
        if not isinstance(seq, SeqExpr):
            return seq
        return ir.with_fields(seq, blocks=tuple(self.block(b) for b in seq.blocks))

    def block(self, block: Any) -> Any:
        return ir.with_fields(block, bindings=tuple(new for b in block.bindings for new in self.binding(b)))

    def binding(self, b: Binding) -> list[Any]:
        value = b.value
        if isinstance(value, ir.If):
            return [replace_value(b, with_sequences(value, self.seq))]
        token = self.taken.get(b.var)
        if token is not None:
            out = []
            if token.var is None:
                token.var, made = _storage(token.bytes, value)
                out.append(made)
            return [*out, _tensor(b, token.var)]
        shaped = is_op(value, "builtin.alloc_tensor") and isinstance(value.args[0], ir.ShapeExpr)
        if self.outputs is None or not shaped or all(isinstance(d, ir.IntImm) for d in value.args[0].values):
            return [b]
        size = prod(self.outputs.largest(value.args[0].values), start=ir.int64(1))
        var, made = _storage(size * ir.int64(ir.DataType(value.args[1].value).itemsize), value)
        return [made, _tensor(b, var)]


def _storage(size: Any, alloc: Any) -> tuple[Any, VarBinding]:
    index, scope, dtype = ir.as_int(alloc.args[2].value) or 0, alloc.args[3].value, alloc.args[1].value
    call = typed_call(alloc_storage(ir.shape_expr((size,)), index, scope, dtype))
    var = Var("storage", call.ty)
    return var, VarBinding(var, call)


def _tensor(b: Binding, storage: Any) -> VarBinding:
    alloc = b.value
    return VarBinding(b.var, typed_call(storage_tensor(storage, 0, alloc.args[0], alloc.args[1].value)), span=b.span)
