"""FuseTIR: the kernels that a group calls, one after another, become one kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft import arith, ir
from weft.relax.core_ops import call_tir, call_tir_inplace, is_op
from weft.relax.effects import written_arguments
from weft.relax.expr import SeqExpr
from weft.relax.infer import bind_type
from weft.relax.rewriter import all_bindings
from weft.relax.te_bridge import undefined_vars
from weft.relax.transform.call_sites import change_calls, used_as_values
from weft.relax.transform.lower_ops import legalize_groups
from weft.spelling import take_name
from weft.tir import Block, BlockRealize, Buffer, For, LetStmt, PrimFunc, Stmt, seq
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
                    out[v] = T.exp(p0[v])

        @R.function(private=True)
        def fused_exp_exp(x: R.Tensor((2,), "float32")):
            R.func_attr({"Primitive": True})
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
                    a[v] = T.exp(x[v])
            for i in range(2):
                with T.sblock("out_1"):
                    v = T.axis.spatial(2, i)
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
    called = {n.name_hint for f in groups for n in ir.find(f.body, ir.GlobalVar)}
    out = change_calls(mod, {n: f for n, (f, _) in fused.items()}, lambda n, call: _call(*fused[n], call, mod, n))
    rest = ir.IRModule({})
    for v, f in out.items():
        rest[v] = fused[v.name_hint][1].func.with_attr("global_symbol", v.name_hint) if v.name_hint in fused else f
    left = {n.name_hint for _, f in rest.items() for n in ir.find(f, ir.GlobalVar)}
    unused = {n for n in called - left if "op_pattern" in rest[n].attrs}  # type: ignore[attr-defined]
    return mod.with_functions({v: f for v, f in rest.items() if v.name_hint not in unused})


@dataclass
class _Kernel:
    """A group as one kernel: what it takes, in terms of the group's own variables."""

    func: Any
    inputs: list[ir.Expr]  # scalars among them
    extra: list[ir.Var]
    places: tuple[int, ...]  # of its results among the inputs, -1 where they are new


@dataclass
class _Merging:
    """The kernels merged so far; what has memory has a key: a variable, a constant, or one of a call's results."""

    buffers: dict[ir.Expr, Buffer] = field(default_factory=dict)  # by key
    known: dict[ir.Expr, Any] = field(default_factory=dict)  # variables that stand for another key, or for several
    inputs: list[ir.Expr] = field(default_factory=list)
    written: set[ir.Expr] = field(default_factory=set)
    nests: list[Any] = field(default_factory=list)
    allocated: list[Buffer] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def value(self, e: ir.Expr) -> Any:
        """Return the key of an expression; a tuple of them for one."""
        if isinstance(e, ir.Tuple):
            return tuple(map(self.value, e.fields))
        if isinstance(e, ir.TupleGetItem):
            whole = self.value(e.tuple_value)
            return whole[e.index] if isinstance(whole, tuple) else e
        if isinstance(e, ir.PrimValue):
            return e.value
        return self.known.get(e, e)

    def add(self, var: Any, call: ir.Call, kernel: PrimFunc) -> bool:
        """Append the body of a kernel, for one call; whether it can be."""
        fields: list[Any] = [self.value(a) for a in call.args[1].fields]  # type: ignore[attr-defined]
        several = isinstance(var.ty, ir.TupleType)
        made = [ir.TupleGetItem(var, i, ty=t) for i, t in enumerate(var.ty.fields)] if several else [var]
        places = call.attrs.get("inplace_indices", (-1,) * len(made))
        if any(i >= 0 and isinstance(fields[i], ir.Constant) for i in places):
            return False
        kept = [fields[i] if i >= 0 else e for i, e in zip(places, made, strict=True)]
        self.known[var] = tuple(kept) if several else kept[0]
        operands = [*fields, *(e for i, e in zip(places, made, strict=True) if i < 0)]
        given = call.args[2].values if len(call.args) > 2 else ()  # type: ignore[attr-defined]
        if len(kernel.params) != len(operands) + len(given):
            return False
        mapping: dict[Any, Any] = {}
        memory: list[tuple[Any, Buffer]] = []
        for p, e in zip(kernel.params, [*operands, *given], strict=True):
            b = kernel.buffer_of(p)
            if b is None and isinstance(e, ir.PrimExpr):
                mapping[p] = ir.cast(p.dtype, e)
            elif b is None or isinstance(e, tuple) or not (_is_plain(b) and _bind_sizes(b, e.ty, mapping)):
                return False
            else:
                memory.append((e, b))
        for e, b in memory:
            if e not in self.buffers:
                self.buffers[e] = _like(b, take_name(getattr(e, "name_hint", b.name), self.names), mapping)
                if all(e is not m for m in made):
                    self.inputs.append(e)
            mapping[b] = self.buffers[e]
            mapping[b.data] = mapping[b].data
        self.written |= set(kept)
        self.append(kernel.root, mapping)
        return True

    def append(self, root: Block, mapping: dict[Any, Any]) -> None:
        """Append the loops of a kernel, whose variables and buffers get twins of their own."""
        for n in list(ir.walk(root)):
            bound = (
                n.loop_var if isinstance(n, For) else n.var if isinstance(n, (ir.IterVar, LetStmt, ir.Let)) else None
            )
            if bound is not None and bound not in mapping:
                mapping[bound] = type(bound)(bound.name, bound.dtype)
        for b in ir.find(root, Buffer):
            if b not in mapping:
                mapping[b] = _like(b, take_name(b.name, self.names), mapping)
                mapping[b.data] = mapping[b].data
        self.allocated += [mapping[b] for b in root.alloc_buffers]
        self.nests.append(self.renamed(ir.substitute(root.body, mapping)))

    def renamed(self, nest: Stmt) -> Any:
        """Give the blocks of a kernel names of their own; what they read of one buffer twice, they read once."""

        def block(n: ir.Node) -> Any:
            if type(n) is not Block:
                return n
            reads = [r for i, r in enumerate(n.reads) if not any(ir.structural_equal(r, o) for o in n.reads[:i])]
            return replace_node(n, name_hint=take_name(n.name_hint, self.names), reads=tuple(reads))

        return ir.rewrite(nest, block)


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
    shape = tuple(_dimension(d, mapping) for d in buffer.shape)
    return replace_node(buffer, data=ir.Var(name, "handle"), shape=shape, name=name)


def _dimension(d: ir.PrimExpr, mapping: dict[Any, Any]) -> Any:
    new = ir.substitute(d, mapping)
    return new if new is d or isinstance(new, (ir.IntImm, ir.Var)) else arith.Analyzer().simplify(new)


def _merge(func: ir.Function, mod: ir.IRModule) -> _Kernel | None:
    """Make one kernel of a group; None where it is something else than calls of kernels in block form."""
    if not isinstance(func.body, SeqExpr):
        return None
    state = _Merging()
    for b in all_bindings(func):
        value = b.value
        if isinstance(value, (ir.Tuple, ir.TupleGetItem, ir.ExprVar)):
            state.known[b.var] = state.value(value)
            continue
        in_place = is_op(value, "call_tir_inplace")
        called = in_place or is_op(value, "call_tir")
        kernel: Any = mod[value.args[0]] if called and value.args[0] in mod else None
        plain = isinstance(kernel, PrimFunc) and isinstance(kernel.body, BlockRealize)
        if not plain or kernel.attrs.get("tir.is_scheduled") or kernel.root.match_buffers:
            return None
        if not isinstance(value.args[1], ir.Tuple) or (not in_place and written_arguments(value, mod)):
            return None
        if len(value.args) > 2 and not isinstance(value.args[2], ir.ShapeExpr):
            return None
        if not state.add(b.var, value, kernel):
            return None
    result = state.value(func.body.body)
    results = list(result) if isinstance(result, tuple) else [result]
    if not results or len(set(results)) != len(results) or not all(r in state.written for r in results):
        return None
    return _finished(func, state, results)


def _finished(func: ir.Function, state: _Merging, results: list[Any]) -> _Kernel:
    """Make the kernel: it takes the inputs as the group does, then constants, results and other scalars."""
    fresh = [r for r in results if r not in state.inputs]
    inner = [b for e, b in state.buffers.items() if e not in state.inputs and e not in fresh]
    root = Block((), (), (), "root", seq(*state.nests), None, (*inner, *state.allocated))
    handles = {e: ir.Var(f"var_{state.buffers[e].name}", "handle") for e in (*state.inputs, *fresh)}
    memory = {h: state.buffers[e] for e, h in handles.items()}
    attrs = ir.Attrs.of({"tir.noalias": True})
    prim = PrimFunc(tuple(memory), BlockRealize((), ir.TRUE, root), None, tuple(memory.items()), attrs)
    extra = undefined_vars(prim)
    inputs: list[Any] = []
    for p in func.params:
        inputs += [p] if p in state.inputs else [v for v in _scalars(p.ty) if v in extra]
    inputs += [e for e in state.inputs if e not in inputs]
    extra = [v for v in extra if v not in inputs]
    params = tuple(handles.get(e, e) for e in (*inputs, *fresh, *extra))
    buffers = tuple((p, memory[p]) for p in params if p in memory)
    places = tuple(inputs.index(r) if r in inputs else -1 for r in results)
    return _Kernel(prim.replace(params=params, buffer_map=buffers), inputs, extra, places)


def _scalars(ty: Any) -> tuple[Any, ...]:
    return (ty.values or ()) if isinstance(ty, ir.ShapeType) else (ty.value,) if isinstance(ty, ir.PrimType) else ()


def _call(func: ir.Function, kernel: _Kernel, call: ir.Call, mod: ir.IRModule, name: str) -> ir.Expr:
    """Return the call of the kernel that a group became."""
    symbols: dict[Any, Any] = {}
    for p, a in zip(func.params, call.args, strict=True):
        if p.ty is not None and a.ty is not None:  # type: ignore[attr-defined]
            bind_type(p.ty, a.ty, symbols, call)  # type: ignore[attr-defined]
    env: dict[ir.Expr, ir.Expr] = dict(zip(func.params, call.args, strict=True))
    inputs = [ir.substitute(e, symbols) if isinstance(e, ir.PrimExpr) else env.get(e, e) for e in kernel.inputs]
    ty: Any = call.ty
    types = list(getattr(ty, "fields", ())) or [ty]
    extra = [ir.substitute(v, symbols) for v in kernel.extra] or None
    gvar = mod.get_global_var(name)
    if max(kernel.places) >= 0:
        return call_tir_inplace(gvar, inputs, kernel.places, types, extra)
    return call_tir(gvar, inputs, types, extra)
