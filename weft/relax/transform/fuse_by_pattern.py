"""FuseOpsByPattern: groups of operators that match a pattern become functions of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft import error, ir
from weft.relax.dpl import DFPattern, extract_matches
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import Binding, BindingBlock, DataflowBlock, DataflowVar, SeqExpr, Var, VarBinding
from weft.relax.infer import function_type
from weft.relax.rename import variables
from weft.relax.rewriter import all_bindings

_GROUPS = ("Composite", "Primitive", "primitive", "Codegen")


@dataclass
class PatternCheckContext:
    """What the ``check`` of a pattern may look at.

    Attributes
    ----------
    matched_expr : Expr
        The value that matches.
    annotated_expr : dict of str to Expr
        What the annotated parts of the pattern stand for.
    matched_bindings : dict of Var to Expr
        The bindings of the group.
    var_usages : dict of Var to sequence of Var
        For each variable of the function, the variables whose values use it.
    value_to_bound_var : dict of Expr to Var
        The variable of each value.
    """

    matched_expr: ir.Expr
    annotated_expr: dict[str, ir.Expr]
    matched_bindings: dict[ir.ExprVar, ir.Expr]
    var_usages: dict[ir.ExprVar, list[ir.ExprVar]]
    value_to_bound_var: dict[ir.Expr, ir.ExprVar]


@dataclass
class FusionPattern:
    """A pattern that makes a group.

    Parameters
    ----------
    name : str
        The group's name, ``backend.what``.
    pattern : DFPattern
    annotation_patterns : mapping of str to DFPattern
        Parts that `check` and `attrs_getter` ask for, by name.
    check : callable, optional
        ``check(context) -> bool``, with a :class:`PatternCheckContext`: False refuses the match.
    attrs_getter : callable, optional
        ``attrs_getter(annotated) -> dict``: further attributes of the function.
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict)
    check: Callable[[PatternCheckContext], bool] | None = None
    attrs_getter: Callable[[dict[str, ir.Expr]], Mapping[str, Any]] | None = None


def FuseOpsByPattern(
    patterns: Sequence[Any],
    bind_constants: bool = True,
    annotate_codegen: bool = False,
    entry_functions: Sequence[str] | None = None,
) -> ir.Pass:
    """Make the pass that turns groups of operators into private functions, earlier patterns first.

    A group's function has the attributes ``Composite`` (the pattern's name) and ``Primitive``. What a group computes on
    the way is used by the group alone, else it does not match.

    Parameters
    ----------
    patterns : sequence of FusionPattern or tuple
        A tuple has the name, the pattern, and perhaps the annotations, the check and the getter of attributes.
    bind_constants : bool
        Whether constants are part of a group, rather than arguments.
    annotate_codegen : bool
        Whether to put each group into a function with the attributes ``Codegen`` (the name up to its first point) and
        ``global_symbol``.
    entry_functions : sequence of str, optional
        Functions to look at; by default all that are no groups.
    """
    rules = [p if isinstance(p, FusionPattern) else FusionPattern(*p) for p in patterns]

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Group the operators."""
        unknown = [n for n in entry_functions or () if n not in mod]
        if unknown:
            raise error.InvalidArgument(f"the module has no function '{unknown[0]}'")
        out = mod.copy()
        made: dict[tuple[str, str], ir.GlobalVar] = {}
        for rule in rules:
            for gvar, func in list(out.items()):
                asked = entry_functions is None or gvar.name_hint in entry_functions
                if asked and isinstance(func, ir.Function) and not any(func.attrs.get(a) for a in _GROUPS):
                    new = _Partition(rule, func, out, bind_constants, annotate_codegen, made).run()
                    if new is not func:
                        out[gvar] = new
        return mod.with_functions(out.functions)

    return ir.Pass("FuseOpsByPattern", run, 0, FuseOpsByPattern.__doc__)


class _Partition:
    """The groups of one pattern in one function."""

    def __init__(
        self,
        rule: FusionPattern,
        func: ir.Function,
        mod: ir.IRModule,
        bind_constants: bool,
        codegen: bool,
        made: dict[tuple[str, str], ir.GlobalVar],
    ) -> None:
        self.rule, self.func, self.mod, self.made = rule, func, mod, made
        self.bind_constants, self.codegen = bind_constants, codegen
        bindings = all_bindings(func)
        self.values: dict[Any, Any] = {b.var: b.value for b in bindings}
        self.var_of: dict[Any, Any] = {b.value: b.var for b in bindings}
        self.users: dict[Any, list[Any]] = {v: [] for v in (*func.params, *self.values)}
        for b in bindings:
            for v in dict.fromkeys(variables(b.value)):
                self.users.setdefault(v, []).append(b.var)
        self.taken: set[Any] = set()
        self.mutable = mutable_variables(func, mod)

    def run(self) -> ir.Function:
        """Return the function with its groups outlined; itself if there are none."""
        seq: Any = self.func.body
        if not isinstance(seq, SeqExpr):
            return self.func
        blocks = tuple(self.block(b, seq) if isinstance(b, DataflowBlock) else b for b in seq.blocks)
        return self.func.replace(body=ir.with_fields(seq, blocks=blocks))

    def block(self, block: DataflowBlock, seq: SeqExpr) -> DataflowBlock:
        """Group the bindings of a block, the last first, so that groups are as large as they can be."""
        groups: dict[Any, list[Any]] = {}
        annotated: dict[Any, dict[str, ir.Expr]] = {}
        for b in reversed(block.bindings):
            found = self.group(b, block)
            if found is not None:
                groups[b.var], annotated[b.var] = found
                self.taken |= set(groups[b.var])
        if not groups:
            return block
        inner = {v for root, members in groups.items() for v in members if v is not root}
        bindings = [
            self.outline(b, groups[b.var], annotated[b.var]) if b.var in groups else b
            for b in block.bindings
            if b.var not in inner
        ]
        return DataflowBlock(tuple(bindings), span=block.span)

    def group(self, binding: Binding, block: DataflowBlock) -> tuple[list[Any], dict[str, ir.Expr]] | None:
        """List the variables of the group that ends at a binding, and what annotated parts stand for."""
        value = binding.value
        if binding.var in self.taken or not isinstance(value, (ir.Call, ir.Tuple, ir.TupleGetItem)):
            return None
        matches = extract_matches(self.rule.pattern, value, self.values)
        if matches is None:
            return None
        here = {b.var for b in block.bindings}
        operations = {e for e in matches.values() if isinstance(e, (ir.Call, ir.Tuple, ir.TupleGetItem))}
        members = [v for v, e in self.values.items() if v in here and e in operations]
        inside = set(members)
        escapes = any(
            v is not binding.var and (not isinstance(v, DataflowVar) or set(self.users[v]) - inside) for v in members
        )
        operators = [v for v in members if _is_operator(self.values[v])]
        if binding.var not in inside or inside & self.taken or escapes or not operators:
            return None
        if not all(is_mergeable(self.values[v], v, self.mutable, self.mod) for v in members):
            return None
        annotated = {n: matches[p] for n, p in self.rule.annotation_patterns.items() if p in matches}
        context = PatternCheckContext(value, annotated, {v: self.values[v] for v in members}, self.users, self.var_of)
        if self.rule.check is not None and not self.rule.check(context):
            return None
        return members, annotated

    def outline(self, root: Any, members: list[Any], annotated: dict[str, ir.Expr]) -> VarBinding:
        """Make a function of a group, and the binding that calls it."""
        renamed: dict[ir.Expr, Any] = {}
        params: list[Any] = []
        args: list[Any] = []

        def inside(e: ir.Expr) -> Any:
            """Return what an operand is within the function."""
            if isinstance(e, ir.Tuple):
                return ir.Tuple(tuple(inside(f) for f in e.fields), span=e.span, ty=e.ty)
            variable = isinstance(e, ir.ExprVar) and not isinstance(e, ir.GlobalVar)
            if e in renamed or not (variable or (isinstance(e, ir.Constant) and not self.bind_constants)):
                return renamed.get(e, e)
            params.append(Var(getattr(e, "name_hint", f"param_{len(params)}"), e.ty))
            args.append(e)
            renamed[e] = params[-1]
            return params[-1]

        bindings: list[Any] = []
        for v in members:
            e = self.values[v]
            if isinstance(e, ir.Call):
                value: Any = ir.Call(e.op, tuple(map(inside, e.args)), e.attrs, e.ty_args, span=e.span, ty=e.ty)
            else:
                value = (
                    inside(e) if isinstance(e, ir.Tuple) else ir.TupleGetItem(inside(e.tuple_value), e.index, ty=e.ty)
                )
            renamed[v] = (Var if v is root.var else DataflowVar)(v.name_hint, v.ty, span=v.span)
            bindings.append(VarBinding(renamed[v], value))
        out = bindings[-1].var
        body = SeqExpr((DataflowBlock(tuple(bindings)),), out, ty=out.ty)
        more = dict(self.rule.attrs_getter(annotated)) if self.rule.attrs_getter else {}
        attrs = {"Composite": self.rule.name, **({} if self.codegen else {"Primitive": True}), **more}
        func = ir.Function(tuple(params), body, out.ty, True, ir.Attrs.of(attrs))
        gvar = self.global_of(func.replace(ty=function_type(func)), members)
        return VarBinding(root.var, ir.Call(gvar, tuple(args), span=root.value.span, ty=root.var.ty), span=root.span)

    def global_of(self, func: ir.Function, members: list[Any]) -> ir.GlobalVar:
        """Add a group's function to the module; equal ones that a code generator compiles are one."""
        names = [self.values[v].op.name for v in members if _is_operator(self.values[v])]
        hint = "_".join(["fused", *names]).replace(".", "_")[:120]
        if self.codegen:
            codegen = self.rule.name.split(".")[0]
            key = (codegen, ir.fingerprint(func))
            if key not in self.made:
                name = self.name(hint, f"_{codegen}")
                self.mod[name] = _with_codegen(func, codegen, name)
                self.made[key] = self.mod.get_global_var(name)
            return self.made[key]
        name = self.name(hint)
        self.mod[name] = func
        return self.mod.get_global_var(name)

    def name(self, hint: str, ending: str = "") -> str:
        """Return a name that the module does not have, numbered as variables are."""
        numbers = ("", *range(1, len(self.mod.functions) + 1))
        return next(n for n in (f"{hint}{i}{ending}" for i in numbers) if n not in self.mod)


def _is_operator(value: ir.Expr) -> bool:
    return isinstance(value, ir.Call) and isinstance(value.op, ir.Op)


def _with_codegen(func: ir.Function, codegen: str, symbol: str) -> ir.Function:
    """Put a group into a function that names its code generator."""
    params = tuple(Var(p.name_hint, p.ty) for p in func.params)
    local, out = Var("local_func", func.ty), Var("output", func.ret_ty)
    body = SeqExpr(
        (BindingBlock((VarBinding(local, func), VarBinding(out, ir.Call(local, params, ty=func.ret_ty)))),),
        out,
        ty=out.ty,
    )
    outer = ir.Function(params, body, func.ret_ty, True, ir.Attrs.of({"Codegen": codegen, "global_symbol": symbol}))
    return outer.replace(ty=function_type(outer))
