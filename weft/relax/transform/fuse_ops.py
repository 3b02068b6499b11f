"""FuseOps: groups operations whose intermediate values need never reach memory.

Each group becomes a function with attribute ``Primitive``, which LegalizeOps turns into one kernel; groups of calls of
kernels, which say by ``op_pattern`` what they do, are for FuseTIR. A value joins the group of its immediate
post-dominator when every operation on the way allows it: element-wise work joins element-wise work, reductions and the
end of an anchor (matmul, convolution). Nothing is computed twice: a value joins only where its consumer has as many
elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from weft import ir, tir
from weft.op import Fusion, get_op_def
from weft.relax.core_ops import CORE_OPS, is_op
from weft.relax.effects import is_mergeable, mutable_variables
from weft.relax.expr import Binding, BindingBlock, DataflowBlock, DataflowVar, MatchCast, SeqExpr, Var, VarBinding
from weft.relax.infer import same_shape
from weft.relax.rename import variables
from weft.relax.transform.dominators import post_dominators
from weft.relax.transform.grouping import with_free_dims

_STANDALONE = ("relax.reshape", "relax.concat", "relax.split", "relax.nn.pad")
_UPDATES = ("relax.index_put", "relax.scatter_elements", "relax.scatter_nd")
"""Copies with changed elements: what these are made of is read once, and need not be stored."""


@ir.module_pass(opt_level=1, ensures="relax.normalized")
def fuse_ops(mod: ir.IRModule, fuse_opt_level: int = -1, *, max_ops: int = 64) -> ir.IRModule:
    """Group operations into primitive functions.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; groups are calls of functions with attribute ``Primitive``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                b: R.Tensor((2, 3), "float32") = cls.fused_exp_add(x)
                R.output(b)
            return b

        @R.function(private=True)
        def fused_exp_add(p_x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a: R.Tensor((2, 3), "float32") = R.exp(p_x)
                b: R.Tensor((2, 3), "float32") = R.add(a, p_x)
                R.output(b)
            return b

    Options:
        ``fuse_opt_level``: 0 leaves everything as it is; by default the level of the context.
        ``max_ops``: the largest group.
    Cost: Linear in bindings times the depth of the post-dominator tree on the way.
    Source: TVM's ``FuseOps``.
    """
    if (ir.PassContext.current().opt_level if fuse_opt_level < 0 else fuse_opt_level) == 0:
        return mod
    out = mod.copy()
    for gvar, func in mod.items():
        if isinstance(func, ir.Function) and not func.attrs.get("Primitive") and isinstance(func.body, SeqExpr):
            body = _fuse_seq(func.body, out, max_ops, mutable_variables(func, mod))
            if body is not func.body:
                out[gvar] = func.replace(body=body)
    return mod.with_functions(out.functions)


def _fuse_seq(seq: SeqExpr, mod: ir.IRModule, max_ops: int, mutable: set[ir.ExprVar]) -> SeqExpr:
    used_outside = _uses_by_block(seq)
    blocks = tuple(_fuse_block(block, mod, max_ops, used_outside[i], mutable) for i, block in enumerate(seq.blocks))
    return ir.with_fields(seq, blocks=blocks)


def _uses_by_block(seq: SeqExpr) -> list[set[ir.ExprVar]]:
    """For each block, the variables that something outside of it uses."""
    after: list[set[ir.ExprVar]] = []
    live = set(variables(seq.body))
    for block in reversed(seq.blocks):
        after.append(set(live))
        for b in block.bindings:
            live.update(variables(b.value))
    return list(reversed(after))


class _Graph:
    """The bindings of one block as a graph: kinds, edges, post-dominators and groups (union-find)."""

    def __init__(
        self,
        block: BindingBlock,
        used_outside: set[ir.ExprVar],
        mod: ir.IRModule | None = None,
        mutable: AbstractSet[ir.ExprVar] = frozenset(),
    ) -> None:
        self.bindings = block.bindings
        self.index = {b.var: i for i, b in enumerate(block.bindings)}
        n = len(block.bindings)
        self.kind = [
            fusion_kind(b, mod) if not mutable or is_mergeable(b.value, b.var, mutable, mod) else int(Fusion.OPAQUE)
            for b in block.bindings
        ]
        self.shape = [b.var.ty.shape if isinstance(b.var.ty, ir.TensorType) else None for b in block.bindings]
        self.users: list[list[int]] = [[] for _ in range(n)]
        self.extern = [b.var in used_outside for b in block.bindings]
        self.group = list(range(n))
        updates = (_is_update(b.value) for b in block.bindings)
        self.group_kind = [int(Fusion.INJECTIVE) if u else k for u, k in zip(updates, self.kind, strict=True)]
        self.members = [[i] for i in range(n)]
        self._same: dict[tuple[int, int], bool] = {}
        for i, b in enumerate(block.bindings):
            for v in dict.fromkeys(variables(b.value)):
                if v in self.index:
                    self.users[self.index[v]].append(i)
        uses = [[(u, 0) for u in us if not out] for us, out in zip(self.users, self.extern, strict=True)]
        self.parent = [d.parent for d in post_dominators(uses)]

    def find(self, i: int) -> int:
        """The representative of a node's group."""
        while self.group[i] != i:
            self.group[i] = self.group[self.group[i]]
            i = self.group[i]
        return i

    def same_elements(self, a: int, b: int) -> bool:
        """Whether the values of two nodes provably have the same shape."""
        key = (a, b)
        if key not in self._same:
            self._same[key] = same_shape(self.shape[a], self.shape[b])
        return self._same[key]

    def between(self, src: int, sink: int) -> list[int] | None:
        """List the nodes on all paths from `src` to `sink`, `sink` last; None when a path leaves before."""
        seen: set[int] = set()
        stack = list(self.users[src])
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            if i > sink:
                return None
            seen.add(i)
            if i != sink:
                stack.extend(self.users[i])
        return sorted(seen)

    def fits(self, nodes: Iterable[int], most: int) -> bool:
        """Whether the groups of some nodes have so few operations, and not many as one expression.

        There, what is shared stands at each of its uses: ``y = y + y`` forty times is 2**40.
        """
        members = sorted(i for root in {self.find(n) for n in nodes} for i in self.members[root])
        sizes: dict[int, int] = {}
        for i in members:
            sizes[i] = 1 + sum(sizes.get(self.index.get(v, -1), 0) for v in variables(self.bindings[i].value))
        return len(members) <= most and sizes[members[-1]] <= _MOST_WRITTEN_OUT

    def merge(self, members: list[int], sink: int) -> None:
        """Put the groups of `members` into that of `sink`."""
        root = self.find(sink)
        for m in members:
            r = self.find(m)
            if r != root:
                self.group[r] = root
                self.group_kind[root] = max(self.group_kind[root], self.group_kind[r])
                self.members[root] += self.members[r]


def fusion_kind(binding: Binding, mod: ir.IRModule | None = None) -> int:
    """How the operation of a binding takes part in fusion: a number of :class:`~weft.op.Fusion`."""
    value = binding.value
    if isinstance(binding, MatchCast) or not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
        return int(Fusion.OPAQUE)
    kernel = kernel_of(value, mod)
    if kernel is not None and isinstance(value.ty, ir.TensorType) and value.ty.shape is not None:
        kind = int(kernel.attrs.get("op_pattern", Fusion.OPAQUE))
        return kind if isinstance(value.args[1], ir.Tuple) else int(Fusion.OPAQUE)
    if (
        value.op.name.removeprefix("relax.") in CORE_OPS
        or value.op.name in _STANDALONE
        or not isinstance(value.ty, ir.TensorType)
    ):
        return int(Fusion.OPAQUE)
    if value.ty.shape is None or not value.ty.dtype:
        return int(Fusion.OPAQUE)
    fusion = get_op_def(value.op).fusion
    return int(fusion(value) if callable(fusion) else fusion)


def kernel_of(value: ir.Expr, mod: ir.IRModule | None) -> tir.PrimFunc | None:
    """Return the TIR function that a ``call_tir`` calls."""
    called = value.args[0] if isinstance(value, ir.Call) and is_op(value, "call_tir") else None
    kernel = mod[called] if mod is not None and isinstance(called, ir.GlobalVar) and called in mod else None
    return kernel if isinstance(kernel, tir.PrimFunc) else None


def _fuse_block(
    block: BindingBlock, mod: ir.IRModule, max_ops: int, used_outside: set[ir.ExprVar], mutable: set[ir.ExprVar]
) -> BindingBlock:
    graph = _Graph(block, used_outside, mod, mutable)
    groups = _grouped(graph, max_ops)
    if all(len(g) == 1 for g in groups.values()):
        return block
    by_sink = {members[-1]: members for members in groups.values()}
    bindings = [
        graph.bindings[i] if len(by_sink[i]) == 1 else _outline(graph, by_sink[i], mod, used_outside)
        for i in range(len(graph.bindings))
        if i in by_sink
    ]
    return type(block)(tuple(bindings), span=block.span)


def _grouped(graph: _Graph, max_ops: int) -> dict[int, list[int]]:
    for phase in (0, 1):
        for i in range(len(graph.bindings)):
            _try_fuse(graph, i, phase, max_ops)
    groups: dict[int, list[int]] = {}
    for i in range(len(graph.bindings)):
        groups.setdefault(graph.find(i), []).append(i)
    return groups


def fusion_groups(bindings: Sequence[Any], used_outside: set[ir.ExprVar], max_ops: int = 64) -> list[list[int]]:
    """Say which bindings of a block FuseOps would put into one kernel.

    Parameters
    ----------
    bindings : sequence of Binding
        In order.
    used_outside : set of ExprVar
        The variables that something besides these bindings uses.

    Returns
    -------
    list of list of int
        The places of each group's members, in order; the last one gives the group's result.
    """
    return list(_grouped(_Graph(DataflowBlock(tuple(bindings)), used_outside), max_ops).values())


_MOST_WRITTEN_OUT = 1000
"""Operations of a kernel as one expression: a second of compiling."""


def _try_fuse(g: _Graph, i: int, phase: int, max_ops: int) -> None:
    sink, kind = g.parent[i], max(g.kind[i], g.group_kind[g.find(i)])
    if sink < 0 or kind >= Fusion.OPAQUE or g.find(i) == g.find(sink) or len(g.members[g.find(i)]) >= max_ops:
        return
    path = g.between(i, sink)
    if path is None or not g.fits([i, *path], max_ops):
        return
    inner, sink_kind = path[:-1], g.group_kind[g.find(sink)]
    if kind in (Fusion.ANCHOR, Fusion.REDUCTION):
        # an epilogue: everything up to the sink is element-wise on the same elements
        if all(g.group_kind[g.find(m)] <= Fusion.BROADCAST and g.same_elements(i, m) for m in path):
            g.merge([i, *inner], sink)
        return
    if (kind <= Fusion.BROADCAST) != (phase == 0):
        return
    if any(g.kind[m] > Fusion.INJECTIVE or not g.same_elements(i, m) for m in inner):
        return
    if sink_kind == Fusion.REDUCTION and g.kind[sink] == Fusion.REDUCTION:
        if kind <= Fusion.BROADCAST and _reads_as_data(g, i, inner, sink):
            g.merge([i, *inner], sink)
        return
    if _is_update(g.bindings[sink].value):
        if _reads_as_update(g, i, inner, sink):
            g.merge([i, *inner], sink)
        return
    limit = Fusion.ANCHOR if kind <= Fusion.BROADCAST else Fusion.INJECTIVE
    if (
        g.kind[sink] <= Fusion.INJECTIVE
        and sink_kind <= limit
        and (g.same_elements(i, sink) or getattr(g.bindings[sink].value, "op", None) is ir.Op.get("relax.permute_dims"))
    ):
        g.merge([i, *inner], sink)


def _reads_as_data(g: _Graph, i: int, inner: list[int], sink: int) -> bool:
    """Whether the group of `i` reaches a reduction only through its first argument."""
    members = {g.bindings[m].var for m in [i, *inner]}
    value = g.bindings[sink].value
    args = value.args[1].fields if is_op(value, "call_tir") else value.args
    return args[0] in members and not any(a in members for a in args[1:])


def _is_update(value: ir.Expr) -> bool:
    return isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name in _UPDATES


def _reads_as_update(g: _Graph, i: int, inner: list[int], sink: int) -> bool:
    """Whether the group of `i` reaches the copy with changed elements only as what it changes them to.

    Repeated indices may be where it changes them: rows of elements that go to one place are vectors then.
    """
    members = [g.bindings[m] for m in [i, *inner]]
    used = {m.var for m in members}
    *rest, updates = g.bindings[sink].value.args
    if len(rest) == 2 and rest[1] in used and all(is_op(m.value, "broadcast_to") for m in members):
        return rest[0] not in used and updates not in used
    return updates in used and used.isdisjoint(v for a in rest for v in variables(a))


def _outline(g: _Graph, members: list[int], mod: ir.IRModule, used_outside: set[ir.ExprVar]) -> VarBinding:
    """Make a primitive function of a group and the binding that calls it."""
    inside = {g.bindings[m].var for m in members}
    params: list[Var] = []
    args: list[ir.Expr] = []
    renamed: dict[ir.Expr, ir.Expr] = {}
    bindings: list[VarBinding] = []

    def parameter(expr: ir.Expr, hint: str) -> ir.Expr:
        for p, a in zip(params, args, strict=True):
            if a is expr:
                return p
        params.append(Var(f"p_{hint}" if hint else f"p{len(params)}", expr.ty))  # type: ignore[attr-defined]
        args.append(expr)
        return params[-1]

    for m in members:
        binding = g.bindings[m]
        value = binding.value
        new_args = tuple(_outline_arg(a, inside, renamed, parameter) for a in value.args)
        var = (Var if m == members[-1] else DataflowVar)(binding.var.name_hint, binding.var.ty)
        call = ir.Call(value.op, new_args, value.attrs, value.ty_args, span=value.span, ty=value.ty)
        bindings.append(VarBinding(var, call, span=binding.span))
        renamed[binding.var] = var
    out = bindings[-1].var
    body = SeqExpr((DataflowBlock(tuple(bindings)),), out, ty=out.ty)
    func = ir.Function(tuple(params), body, out.ty, True, ir.Attrs.of(Primitive=True))
    name = mod.fresh_name(_group_name(g, members))
    mod[name] = with_free_dims(func, args)
    gvar = mod.get_global_var(name)
    sink = g.bindings[members[-1]]
    return VarBinding(sink.var, ir.Call(gvar, tuple(args), span=sink.value.span, ty=sink.var.ty), span=sink.span)


def _outline_arg(arg: ir.Expr, inside: AbstractSet[Any], renamed: dict[ir.Expr, ir.Expr], parameter: Any) -> ir.Expr:
    if arg in inside:
        return renamed[arg]
    if isinstance(arg, ir.Constant):
        return arg if not arg.data.shape or all(d == 1 for d in arg.data.shape) else parameter(arg, "")
    if isinstance(arg, ir.ExprVar) and not isinstance(arg, ir.GlobalVar):
        return arg if isinstance(arg.ty, (ir.ShapeType, ir.PrimType)) else parameter(arg, arg.name_hint)
    if isinstance(arg, ir.Tuple):
        return ir.Tuple(tuple(_outline_arg(f, inside, renamed, parameter) for f in arg.fields), ty=arg.ty)
    return arg


def _group_name(g: _Graph, members: list[int]) -> str:
    values = [g.bindings[m].value for m in members]
    names = [
        v.args[0].name_hint.removeprefix("nn_") if is_op(v, "call_tir") else v.op.name.rsplit(".", 1)[-1]
        for v in values
    ]
    return ("fused_" + "_".join(names))[:80]
