"""FuseTIR: the kernels that a group calls, one after another, become one kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft import ir
from weft.relax.core_ops import call_tir, is_op
from weft.relax.effects import written_arguments
from weft.relax.expr import SeqExpr
from weft.relax.infer import bind_type
from weft.relax.te_bridge import undefined_vars
from weft.relax.transform.call_sites import change_calls, used_as_values
from weft.relax.transform.lower_ops import legalize_groups
from weft.tir import Block, BlockRealize, Buffer, For, LetStmt, PrimFunc, seq
from weft.tir.analysis.structure import replace_node


@ir.module_pass(name="FuseTIR")
def fuse_tir(mod: ir.IRModule) -> ir.IRModule:
    """Turn groups (functions with ``Primitive``) of kernels, or of operators, into one kernel each.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. A group of calls of kernels gives its name to the kernel; groups of other things
        stay. Kernels that only groups called are removed.
    Before::

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            y = cls.fused_exp_exp(x)
            return y

        @T.prim_func(private=True)
        def exp(p0: T.Buffer((2,), "float32"), out: T.Buffer((2,), "float32")):
            T.func_attr({"op_pattern": 0})
            for i in range(2):
                with T.sblock("out"):
                    v = T.axis.spatial(2, i)
                    T.reads(p0[v])
                    T.writes(out[v])
                    out[v] = T.exp(p0[v])

        @R.function(private=True)
        def fused_exp_exp(x: R.Tensor((2,), "float32")):
            R.func_attr({"Primitive": 1})
            with R.dataflow():
                a = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((2,), "float32"))
                b = R.call_tir(cls.exp, (a,), out_ty=R.Tensor((2,), "float32"))
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y: R.Tensor((2,), "float32") = R.call_tir(cls.fused_exp_exp, (x,), out_ty=R.Tensor((2,), "float32"))
            return y

        @T.prim_func
        def fused_exp_exp(x: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
            T.func_attr({"tir.noalias": True})
            a = T.sblock_alloc_buffer((2,), "float32")
            for i in range(2):
                with T.sblock("out"):
                    v = T.axis.spatial(2, i)
                    T.reads(x[v])
                    T.writes(a[v])
                    a[v] = T.exp(x[v])
            for i in range(2):
                with T.sblock("out_1"):
                    v = T.axis.spatial(2, i)
                    T.reads(a[v])
                    T.writes(b[v])
                    b[v] = T.exp(a[v])
    Cost: Linear.
    Source: TVM's ``FuseTIR``.
    """
    mod = legalize_groups(mod)
    values = used_as_values(mod)
    fused: dict[str, tuple[ir.Function, _Kernel]] = {}
    for gvar, func in mod.items():
        if isinstance(func, ir.Function) and func.attrs.get("Primitive") and gvar.name_hint not in values:
            kernel = _merge(func, mod)
            if kernel is not None:
                fused[gvar.name_hint] = (func, kernel)
    if not fused:
        return mod
    groups = [f for f, _ in fused.values()]
    called = {b.value.args[0].name_hint for f in groups for b in f.body.blocks[0].bindings}  # type: ignore[attr-defined]
    out = change_calls(mod, {n: f for n, (f, _) in fused.items()}, lambda n, call: _call(*fused[n], call, mod, n))
    rest = ir.IRModule({})
    for v, f in out.items():
        rest[v] = fused[v.name_hint][1].func.with_attr("global_symbol", v.name_hint) if v.name_hint in fused else f
    left = {n.name_hint for _, f in rest.items() for n in ir.walk(f) if isinstance(n, ir.GlobalVar)}
    unused = {n for n in called - left if "op_pattern" in rest[n].attrs}  # type: ignore[attr-defined]
    return mod.with_functions({v: f for v, f in rest.items() if v.name_hint not in unused})


@dataclass
class _Kernel:
    """A group as one kernel: what it takes, in terms of the group's own variables."""

    func: Any
    inputs: list[ir.Expr]
    extra: list[ir.Var]


@dataclass
class _Merging:
    """The kernels merged so far."""

    buffers: dict[ir.Expr, Buffer] = field(default_factory=dict)  # of variables and constants
    inputs: list[ir.Expr] = field(default_factory=list)
    nests: list[Any] = field(default_factory=list)
    allocated: list[Buffer] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, var: Any, call: ir.Call, kernel: PrimFunc) -> bool:
        """Append the body of a kernel, for one call; whether it can be."""
        args: Any = call.args[1]
        n_inputs = len(args.fields)
        tensors, scalars = kernel.params[: n_inputs + 1], kernel.params[n_inputs + 1 :]
        own = [kernel.buffer_of(p) for p in tensors]
        given = call.args[2].values if len(call.args) > 2 else ()  # type: ignore[attr-defined]
        types = [*(a.ty for a in args.fields), var.ty]
        if len(given) != len(scalars) or not all(b is not None and _is_plain(b) for b in own):
            return False
        mapping: dict[Any, Any] = {p: ir.cast(p.dtype, v) for p, v in zip(scalars, given, strict=True)}
        if not all(_bind_sizes(b, ty, mapping) for b, ty in zip(own, types, strict=True)):
            return False
        for b, e in zip(own, [*args.fields, var], strict=True):
            assert b is not None
            if e not in self.buffers:
                name = self.unique(getattr(e, "name_hint", b.name))
                self.buffers[e] = _like(b, name, mapping)
                if e is not var:
                    self.inputs.append(e)
            mapping[b] = self.buffers[e]
            mapping[b.data] = mapping[b].data
        root = kernel.root
        for n in list(ir.walk(root)):
            bound = (
                n.loop_var if isinstance(n, For) else n.var if isinstance(n, (ir.IterVar, LetStmt, ir.Let)) else None
            )
            if bound is not None and bound not in mapping:
                mapping[bound] = type(bound)(bound.name, bound.dtype)
        for b in (n for n in ir.walk(root) if isinstance(n, Buffer)):
            if b not in mapping:
                mapping[b] = _like(b, self.unique(b.name), mapping)
                mapping[b.data] = mapping[b].data
        self.allocated += [mapping[b] for b in root.alloc_buffers]
        self.nests.append(self.renamed(ir.substitute(root.body, mapping)))
        return True

    def renamed(self, nest: Any) -> Any:
        """Give the blocks of a kernel names of their own."""
        return ir.rewrite(
            nest, lambda n: replace_node(n, name_hint=self.unique(n.name_hint)) if type(n) is Block else n
        )

    def unique(self, hint: str) -> str:
        """Return a name that nothing here has."""
        name, n = hint, 0
        while name in self.names:
            n += 1
            name = f"{hint}_{n}"
        self.names.add(name)
        return name


def _bind_sizes(buffer: Any, ty: Any, mapping: dict[Any, Any]) -> bool:
    """Give the dimensions of a kernel's buffer the values that a type says; whether it says them."""
    if not isinstance(ty, ir.TensorType) or ty.shape is None or len(ty.shape) != len(buffer.shape):
        return False
    for d, e in zip(buffer.shape, ty.shape, strict=True):
        if isinstance(d, ir.Var) and d not in mapping:
            mapping[d] = ir.cast(d.dtype, e)
    return True


def _is_plain(buffer: Buffer) -> bool:
    offset = buffer.elem_offset
    return not buffer.strides and (offset is None or (isinstance(offset, ir.IntImm) and offset.value == 0))


def _like(buffer: Buffer, name: str, mapping: dict[Any, Any]) -> Buffer:
    """Return a buffer of the same form with memory of its own."""
    shape = tuple(ir.substitute(d, mapping) for d in buffer.shape)
    return replace_node(buffer, data=ir.Var(name, "handle"), shape=shape, name=name)


def _merge(func: ir.Function, mod: ir.IRModule) -> _Kernel | None:
    """Make one kernel of a group; None where it is something else than calls of kernels in block form."""
    if not isinstance(func.body, SeqExpr) or len(func.body.blocks) != 1:
        return None
    state = _Merging()
    bindings = func.body.blocks[0].bindings
    for b in bindings:
        value = b.value
        kernel: Any = mod[value.args[0]] if is_op(value, "call_tir") and value.args[0] in mod else None
        plain = isinstance(kernel, PrimFunc) and isinstance(kernel.body, BlockRealize)
        if not plain or kernel.attrs.get("tir.is_scheduled") or kernel.root.match_buffers:
            return None
        if written_arguments(value, mod) or not isinstance(value.args[1], ir.Tuple):
            return None
        if len(value.args) > 2 and not isinstance(value.args[2], ir.ShapeExpr):
            return None
        if not state.add(b.var, value, kernel):
            return None
    result = func.body.body
    results = list(result.fields) if isinstance(result, ir.Tuple) else [result]
    made = dict.fromkeys(b.var for b in bindings)
    if len(set(results)) != len(results) or not all(r in made for r in results):
        return None
    outputs = [state.buffers[r] for r in results]
    inner = [state.buffers[v] for v in made if all(state.buffers[v] is not o for o in outputs)]
    args = [*(state.buffers[e] for e in state.inputs), *outputs]
    handles = [ir.Var(f"var_{b.name}", "handle") for b in args]
    root = Block((), (), (), "root", seq(*state.nests), None, (*inner, *state.allocated))
    attrs = ir.Attrs.of({"tir.noalias": True})
    prim = PrimFunc(
        tuple(handles), BlockRealize((), ir.TRUE, root), None, tuple(zip(handles, args, strict=True)), attrs
    )
    extra = undefined_vars(prim)
    return _Kernel(prim.replace(params=(*prim.params, *extra)), state.inputs, extra)


def _call(func: ir.Function, kernel: _Kernel, call: ir.Call, mod: ir.IRModule, name: str) -> ir.Expr:
    """Return the call of the kernel that a group became."""
    symbols: dict[Any, Any] = {}
    for p, a in zip(func.params, call.args, strict=True):
        if p.ty is not None and a.ty is not None:  # type: ignore[attr-defined]
            bind_type(p.ty, a.ty, symbols, call)  # type: ignore[attr-defined]
    env: dict[ir.Expr, ir.Expr] = dict(zip(func.params, call.args, strict=True))
    inputs = [env.get(e, e) for e in kernel.inputs]
    ty: Any = call.ty
    types = list(getattr(ty, "fields", ())) or [ty]
    extra = [ir.substitute(v, symbols) for v in kernel.extra]
    return call_tir(mod.get_global_var(name), inputs, types, extra or None)
