"""ConcatInPlace: kernels write what will be concatenated where it belongs, so that nothing is copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from weft import ir
from weft.ir import Expr, Function, GlobalVar, IRModule, TensorType, Tuple, as_int, find, fingerprint, module_pass
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import call_tir, call_tir_inplace, is_op
from weft.relax.expr import SeqExpr
from weft.relax.rewriter import rewrite_bindings, use_counts
from weft.relax.te_bridge import undefined_vars
from weft.relax.transform.concat_places import concatenated, writes_once, written_at
from weft.te import compute, kernel_of_stages, placeholder
from weft.tir import PrimFunc


@module_pass(name="ConcatInPlace", opt_level=1)
def concat_in_place(mod: IRModule) -> IRModule:
    """Let the kernels that make the parts of a concatenation write them into the result.

    Requires: ``relax.legalized``, with kernels that are not scheduled.
    Ensures: ``relax.legalized``. A part is written in place when a kernel in the same block makes it, for this
        concatenation alone, as a single result; parts that are not are copied into the result. Where most of the result
        would be copied the concatenation stays as it is. A kernel that makes several parts is told where each begins.
        Kernels of operators that nothing calls any more are removed.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((2,), "float32"))
                b = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((2,), "float32"))
                y = R.call_tir(cls.concat, (a, b), out_ty=R.Tensor((4,), "float32"))
                R.output(y)
            return y

        @T.prim_func
        def concat(p0: T.Buffer((2,), "float32"), p1: T.Buffer((2,), "float32"), out: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("out"):
                    v = T.axis.spatial(4, i)
                    out[v] = T.if_then_else(v < 2, p0[v], p1[v - 2])

        @T.prim_func
        def exp(p0: T.Buffer((2,), "float32"), out: T.Buffer((2,), "float32")):
            for i in range(2):
                with T.sblock("out"):
                    v = T.axis.spatial(2, i)
                    out[v] = T.exp(p0[v])

    After::

        @R.function
        def main(x: R.Tensor((2,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
            with R.dataflow():
                lv = R.call_tir(cls.exp_at, (x,), out_ty=R.Tensor((4,), dtype="float32"), tir_vars=R.shape([0]))
                lv0 = R.call_tir_inplace(
                    cls.exp_at, (x, lv), inplace_indices=(1,), out_ty=R.Tensor((4,), "float32"), tir_vars=R.shape([2])
                )
                y: R.Tensor((4,), dtype="float32") = lv0
                R.output(y)
            return y

        @T.prim_func
        def concat(p0: T.Buffer((2,), "float32"), p1: T.Buffer((2,), "float32"), out: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("out"):
                    v = T.axis.spatial(4, i)
                    out[v] = T.if_then_else(v < 2, p0[v], p1[v - 2])

        @T.prim_func
        def exp(p0: T.Buffer((2,), "float32"), out: T.Buffer((2,), "float32")):
            for i in range(2):
                with T.sblock("out"):
                    v = T.axis.spatial(2, i)
                    out[v] = T.exp(p0[v])

        @T.prim_func
        def exp_at(p0: T.Buffer((2,), "float32"), out: T.Buffer((T.int64(4),), "float32"), begin: T.int64):
            T.func_attr({"tir.noalias": True})
            for i in range(2):
                with T.sblock("out"):
                    v = T.axis.spatial(2, i)
                    out[v + T.Cast("int32", begin)] = T.exp(p0[v])
    Cost: Linear.
    Source: None.
    """
    bb = BlockBuilder(mod)
    made: dict[str, GlobalVar] = {}
    for gvar, func in mod.items():
        if isinstance(func, Function) and isinstance(func.body, SeqExpr):
            writer = _Writer(*_find(func, mod), bb, made)
            if writer.joins:
                bb.update_func(gvar, rewrite_bindings(func, mod, writer.rule, bb))
    return mod.with_functions(_without_unused(bb.get(), mod).functions) if made else mod


def _without_unused(mod: IRModule, before: IRModule) -> IRModule:
    """Remove the kernels that operators became (``op_pattern``) and that nothing calls any more."""
    called = {n for _, f in mod.items() for n in find(f, GlobalVar)}
    for gvar, func in before.items():
        if isinstance(func, PrimFunc) and "op_pattern" in func.attrs and gvar not in called:
            del mod[gvar]
    return mod


_Place = tuple[GlobalVar, int, int | None]


@dataclass
class _Join:
    """A concatenation: its parts with where each begins, those of them that are written in place, and the result."""

    axis: int
    begins: dict[Expr, int]  # by a part's variable
    placed: set[Expr]
    ty: TensorType
    value: Expr | None = None  # the result, as far as it is written

    def place(self, kernel: GlobalVar) -> _Place:
        """What the code of a kernel that writes a part depends on, but for where the part begins."""
        assert self.ty.shape is not None
        return kernel, self.axis, as_int(self.ty.shape[self.axis])


def _find(func: Function, mod: IRModule) -> tuple[dict[Expr, _Join], dict[Expr, _Join], dict[_Place, set[int]]]:
    """Find the concatenations to rewrite, by their own variable and by those of the parts in place.

    Behind these, where each kernel writes parts of tensors of one shape.
    """
    joins: dict[Expr, _Join] = {}
    parts: dict[Expr, _Join] = {}
    begins: dict[_Place, set[int]] = {}
    assert isinstance(func.body, SeqExpr)
    uses = use_counts(func)
    for block in func.body.blocks:
        kernels: dict[Expr, GlobalVar] = {b.var: b.value.args[0] for b in block.bindings if _is_placeable(b.value, mod)}
        for b in block.bindings:
            join = _join_of(b.value, mod)
            if join is None:
                continue
            sizes = {v: prod(as_int(d) or 1 for d in v.ty.shape) for v in b.value.args[1].fields}
            join.placed = {v for v in sizes if v in kernels and uses[v] == 1 and v not in joins}
            if 2 * sum(sizes[v] for v in join.placed) > sum(sizes.values()):
                joins[b.var] = join
                for v in join.placed:
                    parts[v] = join
                    begins.setdefault(join.place(kernels[v]), set()).add(join.begins[v])
    return joins, parts, begins


def _is_placeable(value: Any, mod: IRModule) -> bool:
    """Whether a call of a kernel makes one tensor, which could as well be inside of a larger one."""
    if not is_op(value, "call_tir") or not isinstance(value.ty, TensorType) or value.ty.shape is None:
        return False
    func, args = mod[value.args[0]], value.args[1]
    return isinstance(func, PrimFunc) and isinstance(args, Tuple) and writes_once(func, len(args.fields))


def _join_of(value: Any, mod: IRModule) -> _Join | None:
    """Read a call of a kernel that concatenates tensors, none of them twice."""
    if not is_op(value, "call_tir") or not isinstance(value.ty, TensorType) or not isinstance(value.args[1], Tuple):
        return None
    func, fields = mod[value.args[0]], value.args[1].fields
    found = concatenated(func, len(fields)) if isinstance(func, PrimFunc) else None
    if found is None or len(set(fields)) != len(fields):
        return None
    return _Join(found[0], dict(zip(fields, found[1], strict=True)), set(), value.ty)


@dataclass
class _Writer:
    """Rewrites the bindings of a function: kernels of parts, and what is left to do where they were concatenated."""

    joins: dict[Expr, _Join]
    parts: dict[Expr, _Join]
    begins: dict[_Place, set[int]]
    bb: BlockBuilder
    made: dict[str, GlobalVar] = field(default_factory=dict)

    def rule(self, binding: Any, value: Any, bb: BlockBuilder) -> Expr | None:
        """Rewrite one binding."""
        var, join = binding.var, self.parts.get(binding.var)
        if join is not None:
            gvar, args, *scalars = value.args
            begin: ir.PrimExpr = ir.const(join.begins[var], "int64")
            func = self.bb.module[gvar]
            if len(self.begins[join.place(gvar)]) > 1:
                scalars = [[*(scalars[0].values if scalars else ()), begin]]
                begin = ir.SizeVar("begin", "int64")
                assert isinstance(func, PrimFunc)
                func = func.replace(params=(*func.params, begin))
            return self.write(join, begin, func, gvar.name_hint, list(args.fields), scalars)
        join = self.joins.get(var)
        if join is None:
            return None
        for part, now in zip(binding.value.args[1].fields, value.args[1].fields, strict=True):
            if part not in join.placed:
                source = placeholder(part.ty.shape, part.ty.dtype, name="p0")
                copy = kernel_of_stages([source, compute(source.shape, lambda *i, s=source: s(*i), name="copy")])
                free = undefined_vars(copy)
                copy = copy.replace(params=(*copy.params, *free))
                begin = ir.const(join.begins[part], "int64")
                join.value = self.write(join, begin, copy, "copy", [now], [free] if free else [])
        return join.value

    def write(
        self, join: _Join, begin: ir.PrimExpr, func: Any, name: str, args: list[Expr], scalars: list[Any]
    ) -> Expr:
        """Emit a call that writes a part to its place in the result, and return the result."""
        assert join.ty.shape is not None
        placed = written_at(func, len(args), join.axis, begin, join.ty.shape[join.axis])
        key = fingerprint(placed.without_attr("global_symbol"))
        if key not in self.made:
            unique = self.bb.module.fresh_name(name + "_at")
            self.bb.module[unique] = placed.with_attr("global_symbol", unique)
            self.made[key] = self.bb.module.get_global_var(unique)
        gvar = self.made[key]
        if join.value is None:
            join.value = self.bb.emit(call_tir(gvar, args, join.ty, *scalars))
        else:
            join.value = self.bb.emit(call_tir_inplace(gvar, [*args, join.value], len(args), join.ty, *scalars))
        return join.value
