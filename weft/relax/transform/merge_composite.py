"""MergeCompositeFunctions: neighbouring groups for one code generator become one function."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import BindingBlock, DataflowBlock, DataflowVar, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type
from weft.relax.ordering import dependencies, sort_bindings
from weft.relax.rename import copy_with_new_vars, rename_vars, variables
from weft.relax.transform.call_sites import called_only
from weft.spelling import take_name


@ir.module_pass
def merge_composite_functions(mod: ir.IRModule) -> ir.IRModule:
    """Put calls of ``Composite`` functions for one code generator, as far as they hang together, into one function.

    Requires: ``relax.normalized``; the name of a composite function is ``generator.what``.
    Ensures: ``relax.normalized``; the new functions have the attributes ``Codegen`` (the generator) and
        ``global_symbol``.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                y = cls.fused_exp(x)
                R.output(y)
            return y

        @R.function(private=True)
        def fused_exp(x: R.Tensor((2,), "float32")):
            R.func_attr({"Composite": "my.exp", "Primitive": True})
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y: R.Tensor((2,), "float32") = cls.fused_exp1_my(x)
                R.output(y)
            return y

        @R.function
        def fused_exp1_my(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"Codegen": "my"})

            @R.function(private=True)
            def fused_exp(x1: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                R.func_attr({"Composite": "my.exp"})
                with R.dataflow():
                    y1: R.Tensor((2,), "float32") = R.exp(x1)
                    R.output(y1)
                return y1

            y: R.Tensor((2,), "float32") = fused_exp(x)
            return y
    Cost: Linear for each binding that is grouped.
    Source: TVM's ``MergeCompositeFunctions``.
    """
    composite = {n: f for n, f in called_only(mod).items() if f.attrs.get("Composite")}
    if not composite:
        return mod
    out, names = mod.copy(), _Names(mod)
    for gvar, func in mod.items():
        if isinstance(func, ir.Function) and isinstance(func.body, SeqExpr) and not func.attrs.get("Codegen"):
            later = [set(variables(func.body.body))]
            for block in reversed(func.body.blocks):
                later.append(later[-1] | {v for b in block.bindings for v in variables(b.value)})  # type: ignore[attr-defined]
            after = reversed(later[:-1])
            mutable = mutable_variables(func, mod)
            blocks = tuple(
                _Merge(block, composite, out, used, mutable, names).run() if isinstance(block, DataflowBlock) else block
                for block, used in zip(func.body.blocks, after, strict=True)
            )
            if (body := ir.with_fields(func.body, blocks=blocks)) is not func.body:
                out[gvar] = func.replace(body=body)
    left = {n.name_hint for _, f in out.items() for n in _named(f)}
    return mod.with_functions({v: f for v, f in out.items() if v.name_hint not in composite or v.name_hint in left})


def _named(func: Any) -> list[ir.GlobalVar]:
    bindings = [b for block in getattr(getattr(func, "body", None), "blocks", ()) for b in block.bindings]
    return [b.value.op for b in bindings if isinstance(b.value, ir.Call) and isinstance(b.value.op, ir.GlobalVar)]


class _Names:
    """Names of groups: those of what is in them, with a number where that is taken."""

    def __init__(self, mod: ir.IRModule) -> None:
        self.taken = {v.name_hint for v in mod}
        self.made: dict[str, ir.Function] = {}  # equal groups are one function

    def fresh(self, hint: str) -> str:
        """Return the hint or the first free one with a number, which is taken then."""
        return take_name(hint, self.taken, separator="")


class _Merge:
    """The groups of one block."""

    def __init__(
        self,
        block: DataflowBlock,
        composite: dict[str, ir.Function],
        mod: ir.IRModule,
        used: set[ir.ExprVar],
        mutable: set[ir.ExprVar],
        names: _Names,
    ) -> None:
        self.block, self.composite, self.mod, self.used_later = block, composite, mod, used
        self.names = names
        self.needs = dependencies(block.bindings)
        self.mutable = mutable
        self.users: list[set[int]] = [set() for _ in self.needs]
        for i, needed in enumerate(self.needs):
            for j in needed:
                self.users[j].add(i)

    def run(self) -> DataflowBlock:
        """Return the block with its groups outlined; itself if there are none."""
        group_of: dict[int, set[int]] = {}
        for i in range(len(self.needs)):
            name = self.generator(i)
            if name is None:
                continue
            group = {i}
            for j in sorted(self.needs[i]):
                other = group_of.get(j)
                if (
                    other is not None
                    and not other <= group
                    and self.generator(j) == name
                    and self.closed(group | other)
                ):
                    group |= other
            group_of |= dict.fromkeys(group, group)
        if not group_of:
            return self.block
        groups = list({id(g): sorted(g) for g in group_of.values()}.values())
        at: list[list[Any]] = [[b] if i not in group_of else [] for i, b in enumerate(self.block.bindings)]
        for members in groups:
            at[members[-1]] = self.outline(members)
        return DataflowBlock(tuple(sort_bindings([b for here in at for b in here])), span=self.block.span)

    def generator(self, i: int) -> str | None:
        """Return the code generator that a binding is for."""
        value: Any = self.block.bindings[i].value  # type: ignore[attr-defined]
        name = value.op.name_hint if isinstance(value, ir.Call) and isinstance(value.op, ir.GlobalVar) else ""
        if name in self.composite and not is_mergeable(value, self.block.bindings[i].var, self.mutable, self.mod):
            return None
        return str(self.composite[name].attrs["Composite"]).split(".")[0] if name in self.composite else None

    def closed(self, group: set[int]) -> bool:
        """Whether nothing outside of a group lies between its members."""
        behind = {j for i in group for j in self.users[i]} - group
        stack = list(behind)
        while stack:
            for j in self.users[stack.pop()]:
                if j in group:
                    return False
                if j not in behind:
                    behind.add(j)
                    stack.append(j)
        return True

    def outline(self, members: list[int]) -> list[Any]:
        """Make a function of a group; return the bindings that call it."""
        old: list[Any] = [self.block.bindings[i] for i in members]
        inside = {b.var for b in old}
        args = list(dict.fromkeys(v for b in old for v in reversed(variables(b.value)) if v not in inside))
        params = [Var(v.name_hint, v.ty) for v in args]
        renamed: dict[ir.Expr, ir.Expr] = dict(zip(args, params, strict=True))
        local: dict[str, Any] = {}
        body: list[Any] = []
        for b in old:
            name = b.value.op.name_hint
            if name not in local:
                func = copy_with_new_vars(self.composite[name].without_attr("Primitive"))
                local[name] = Var(name, function_type(func))
                body.append(VarBinding(local[name], func))
            value: Any = rename_vars(b.value, renamed)
            var = Var(b.var.name_hint, b.var.ty)
            body.append(VarBinding(var, ir.Call(local[name], value.args, value.attrs, span=value.span, ty=value.ty)))
            renamed[b.var] = var
        group = set(members)
        outs = [b for i, b in zip(members, old, strict=True) if self.users[i] - group or b.var in self.used_later]
        outs = outs or old[-1:]
        results = tuple(renamed[b.var] for b in outs)
        ty: Any = outs[0].var.ty if len(outs) == 1 else ir.TupleType(tuple(b.var.ty for b in outs))
        seq = SeqExpr((BindingBlock(tuple(body)),), results[0] if len(outs) == 1 else ir.Tuple(results, ty=ty), ty=ty)
        generator = self.generator(members[0])
        hint = "_".join(["fused", *(b.value.op.name_hint.removeprefix("fused_") for b in old)])
        func = ir.Function(tuple(params), seq, ty, True, ir.Attrs.of({"Codegen": generator}))
        symbol = next((n for n, made in self.names.made.items() if ir.structural_equal(made, func)), None)
        if symbol is None:
            symbol = f"{self.names.fresh(hint)}_{generator}"
            self.names.made[symbol] = func
            func = func.with_attr("global_symbol", symbol)
            self.mod[symbol] = func.replace(ty=function_type(func))
        call = ir.Call(self.mod.get_global_var(symbol), tuple(args), span=old[-1].value.span, ty=ty)
        if len(outs) == 1:
            return [VarBinding(outs[0].var, call, span=outs[0].span)]
        whole = DataflowVar(symbol, ty)
        items = [VarBinding(b.var, ir.TupleGetItem(whole, i, ty=b.var.ty)) for i, b in enumerate(outs)]
        return [VarBinding(whole, call), *items]
