"""CanonicalizeBindings: no variable is just another name, no tuple is made to be taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import arith, error, ir
from weft.relax.analysis.types import type_outside
from weft.relax.expr import DataflowBlock, DataflowVar, MatchCast, SeqExpr, VarBinding
from weft.relax.infer import function_type, result_type, type_of
from weft.relax.rename import rename_vars, variables, with_sequences
from weft.relax.rewriter import all_bindings, localize, replace_value, rewrite_bindings
from weft.tir.analysis.structure import replace_node


@ir.function_pass(kind=ir.Function)
def canonicalize_bindings(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Drop bindings that only give another name, and tuples that are only taken apart; join neighbouring blocks.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. A size that a ``match_cast`` names, of a value whose sizes are known, is that size.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.exp(x)
                t = (a, y)
                b = t[1]
                c = b
                d = R.add(a, c)
                e = d
                R.output(e)
            return e

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                a: R.Tensor((2, 3), "float32") = R.exp(x)
                t: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32")) = (a, y)
                e: R.Tensor((2, 3), "float32") = R.add(a, y)
                R.output(e)
            return e
    Cost: Linear.
    Source: TVM's ``CanonicalizeBindings``.
    """
    return without_other_names(_with_known_sizes(func, mod)) if isinstance(func.body, SeqExpr) else func


def without_other_names(func: ir.Function) -> ir.Function:
    """Drop bindings that give another name, and tuples that are taken apart, of a function in normal form."""
    body: Any = func.body
    while (new := _Canonical().sequence(body)) is not body:  # blocks that were joined may need fewer variables
        body = new
    return func if body is func.body else func.replace(body=body)


def _with_known_sizes(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Replace the sizes that casts outside of branches name, where what is cast has known ones."""
    outer = [b for block in func.body.blocks for b in block.bindings if isinstance(b, MatchCast)]  # type: ignore[attr-defined]
    inner = {n for b in all_bindings(func) if isinstance(b, MatchCast) and b not in outer for n in ir.walk(b.ty)}
    given = {n for p in func.params for n in ir.walk(p.ty)}
    known: dict[ir.Var, Any] = {}
    for b in outer:
        for named, size in _dimensions(b.ty, getattr(b.value, "ty", None)):
            size = arith.Analyzer().simplify(ir.substitute(size, known))
            before = known.get(named)
            if before is None and named not in given and named not in inner and size is not named:
                known[named] = size
            elif isinstance(before, ir.IntImm) and isinstance(size, ir.IntImm) and before.value != size.value:
                raise error.ShapeMismatch(
                    f"MatchCast statements must be consistent: '{named.name}' has two values",
                    where=b.span,
                    expected=str(before),
                    found=str(size),
                )
        given |= {n for n in ir.walk(b.ty) if n not in known}
    if not known:
        return func

    def untyped(_binding: object, value: ir.Expr, _bb: object) -> Any:  # its type is inferred again
        return replace_node(value, ty=None) if isinstance(value, (ir.Call, ir.Tuple, ir.TupleGetItem)) else None

    new: Any = rewrite_bindings(ir.substitute(func, known), mod, untyped)
    result = replace_node(new.body.body, ty=None) if isinstance(new.body.body, ir.Tuple) else new.body.body
    new = new.replace(body=replace_node(new.body, body=result, ty=type_of(result)))
    new = new.replace(ret_ty=result_type(func.ret_ty, type_outside(new.params, new.body)))
    return new.replace(ty=function_type(new))


def _dimensions(named: Any, found: Any) -> Iterator[tuple[ir.Var, Any]]:
    """Pair the variables that a type gives to sizes with the sizes that another type knows."""
    if isinstance(named, ir.TupleType) and isinstance(found, ir.TupleType):
        for pair in zip(named.fields, found.fields, strict=False):
            yield from _dimensions(*pair)
    sizes: Any = [getattr(t, "shape", None) or getattr(t, "values", None) or () for t in (named, found)]
    yield from ((v, d) for v, d in zip(*sizes, strict=False) if isinstance(v, ir.Var))


class _Canonical:
    """What variables stand for, in the order of execution."""

    def __init__(self) -> None:
        self.renamed: dict[ir.Expr, ir.Expr] = {}
        self.values: dict[ir.Expr, Any] = {}

    def sequence(self, seq: SeqExpr) -> SeqExpr:
        """Rewrite the blocks of a sequence; the sequence itself if nothing changed."""
        blocks: list[Any] = []
        for new in map(self.block, self.localized(seq)):
            if blocks and new.bindings and type(blocks[-1]) is type(new):
                blocks[-1] = type(new)(blocks[-1].bindings + new.bindings, span=blocks[-1].span)
            elif new.bindings:
                blocks.append(new)
        return ir.with_fields(seq, blocks=tuple(blocks), body=rename_vars(seq.body, self.renamed))

    @staticmethod
    def localized(seq: SeqExpr) -> list[Any]:
        """Return the blocks of a sequence, where variables that only their own dataflow block uses do not leave it."""
        outside, blocks = set(variables(seq.body)), list(seq.blocks)
        for i, block in reversed([*enumerate(blocks)]):
            if isinstance(block, DataflowBlock):
                blocks[i] = ir.with_fields(block, bindings=tuple(localize(block.bindings, outside, {})))
            outside |= {v for b in block.bindings for v in variables(b.value)}
        return blocks

    def block(self, block: Any) -> Any:
        """Rewrite one block."""
        kept: list[Any] = []
        for b in block.bindings:
            value = self.inside(rename_vars(b.value, self.renamed))
            plain = self.shorter(value)
            if isinstance(b, MatchCast) and not ir.structural_equal(getattr(plain, "ty", None), b.ty):
                kept.append(replace_value(b, value))
            elif self.is_name(b.var, plain):
                self.renamed[b.var] = plain
            elif isinstance(plain, DataflowVar) and self.give_name(plain, b.var, kept):
                continue
            else:
                self.values[b.var] = plain
                new = replace_value(b, plain)
                kept.append(VarBinding(new.var, new.value, span=b.span) if isinstance(new, MatchCast) else new)
        return ir.with_fields(block, bindings=tuple(kept))

    @staticmethod
    def is_name(var: ir.ExprVar, value: ir.Expr) -> bool:
        """Whether a variable is only a name for a value that can stand everywhere the variable does."""
        if isinstance(value, DataflowVar) and not isinstance(var, DataflowVar):
            return False
        named = isinstance(value, ir.ExprVar) or (isinstance(value, ir.Constant) and isinstance(var, DataflowVar))
        return named and ir.structural_equal(value.ty, var.ty)

    def give_name(self, old: DataflowVar, new: ir.ExprVar, kept: list[Any]) -> bool:
        """Let the binding of a block's own variable bind the variable that leaves the block, if it is among `kept`."""
        place = next((i for i, b in enumerate(kept) if b.var is old), None)
        if place is None or not ir.structural_equal(old.ty, new.ty):
            return False
        change: dict[ir.Expr, ir.Expr] = {old: new}
        kept[place] = replace_value(kept[place], kept[place].value, new)
        kept[place + 1 :] = [replace_value(b, rename_vars(b.value, change)) for b in kept[place + 1 :]]
        self.values = {k: rename_vars(v, change) for k, v in self.values.items()}
        self.renamed = {k: rename_vars(v, change) for k, v in self.renamed.items()} | change
        return True

    def shorter(self, value: ir.Expr) -> Any:
        """Return the element that an index takes from a tuple, or the tuple that elements make up again."""
        if isinstance(value, ir.TupleGetItem):
            whole = self.values.get(value.tuple_value, value.tuple_value)
            return whole.fields[value.index] if isinstance(whole, ir.Tuple) else value
        if isinstance(value, ir.Tuple) and value.fields:
            items = [self.values.get(f, f) for f in value.fields]
            whole = items[0].tuple_value if isinstance(items[0], ir.TupleGetItem) else None
            if (
                isinstance(whole, ir.ExprVar)
                and all(isinstance(t, ir.TupleGetItem) and t.tuple_value is whole for t in items)
                and [t.index for t in items] == list(range(len(getattr(whole.ty, "fields", ()))))
            ):
                return whole
        return value

    def inside(self, value: ir.Expr) -> Any:
        """Rewrite branches and inner functions."""
        return with_sequences(value, lambda s: self.sequence(s) if isinstance(s, SeqExpr) else s)
