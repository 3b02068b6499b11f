"""What calls do besides returning a result: the one place that decides it, which every pass asks.

Two questions differ. What the *language* calls pure (:func:`is_pure_call`) may stand in dataflow blocks and in pure
functions. What a pass may *drop* (:func:`is_removable`) writes to nothing either, and checks nothing: calls that work
in place are pure, since the arguments they overwrite are not to be used afterwards, but somebody outside holds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any
from weakref import WeakKeyDictionary

from weft import ir, tir
from weft.op import get_op_def
from weft.relax.core_ops import CORE_OPS
from weft.relax.expr import Binding, MatchCast, SeqExpr
from weft.relax.rename import variables

_DESTINATION_PASSING = ("call_tir", "call_tir_inplace")
_ALLOCATIONS = (
    "memory.alloc_tensor",
    "builtin.alloc_tensor",
    "memory.alloc_storage",
    "vm.alloc_storage",
    "vm.alloc_tensor",
)
_READING = (*_ALLOCATIONS, "print", "assert_op")
"""Impure operators that write to no argument."""
VIEWS = tuple(
    (
        "reshape call_builtin call_builtin_with_ctx call_pure_packed make_closure memory.alloc_tensor "
        "builtin.stop_lift_params memory.ensure_zero_offset memory.view vm.alloc_tensor"
    ).split()
)
"""Operators whose result may be, or hold, the memory of an argument."""


def is_pure_call(call: ir.Call, mod: ir.IRModule | None = None) -> bool:
    """Whether the language calls a call pure, so that it may stand in a dataflow block or a pure function.

    Parameters
    ----------
    mod : IRModule, optional
        Where functions called by global variable are found; else their types are believed.
    """
    if isinstance(call.op, ir.Op):
        core = CORE_OPS.get(_name(call))
        return core[1] if core is not None else bool(getattr(get_op_def(call.op), "pure", True))
    if isinstance(call.op, ir.ExternFunc):
        return False
    callee = _callee(call.op, mod)
    if isinstance(callee, (ir.Function, ir.ExternFunc)):
        return isinstance(callee, ir.Function) and callee.is_pure
    ty = call.op.ty
    return ty.purity if isinstance(ty, ir.FuncType) else isinstance(call.op, (ir.GlobalVar, ir.ExprVar))


def written_arguments(
    call: ir.Expr, mod: ir.IRModule | None = None, active: tuple[ir.Function, ...] = ()
) -> tuple[ir.Expr, ...]:
    """List the arguments whose memory a call changes, or may change where what it calls is not known.

    Parameters
    ----------
    active : tuple of Function
        Those that are being looked into: recursive calls change what their bodies do.
    """
    if not isinstance(call, ir.Call):
        return ()
    if isinstance(call.op, ir.Op):
        name = _name(call)
        if name in _DESTINATION_PASSING:
            packed: Any = call.args[1]
            fields = packed.fields if isinstance(packed, ir.Tuple) else (packed,) * len(packed.ty.fields)
            kernel = _callee(call.args[0], mod)
            stored = _written_places(kernel)[0] if isinstance(kernel, tir.PrimFunc) else ()
            places = {i for i in (*call.attrs.get("inplace_indices", ()), *stored) if 0 <= i < len(fields)}
            return tuple(fields[i] for i in sorted(places))
        if name == "call_inplace_packed":
            return tuple(call.args[1 + i] for i in call.attrs["inplace_indices"] if i >= 0)
        return () if is_pure_call(call) or name in _READING else _tensors(call.args)
    callee = _callee(call.op, mod)
    if isinstance(callee, tir.PrimFunc):
        stored, given_away = _written_places(callee)
        return tuple(a for i, a in enumerate(call.args) if i in stored or i in given_away)
    if isinstance(callee, ir.Function):
        if callee in active:
            return ()
        mutable = mutable_variables(callee, mod, (*active, callee))
        return tuple(a for p, a in zip(callee.params, call.args, strict=False) if p in mutable)
    ty = getattr(call.op, "ty", None)
    known = isinstance(ty, ir.FuncType) and ty.params is not None and ty.purity
    return () if known else _tensors(call.args)


def is_removable(value: ir.Expr, mod: ir.IRModule | None = None) -> bool:
    """Whether nobody misses a binding's value that nothing uses: it writes to nothing, checks nothing, never fails."""
    if isinstance(value, ir.Call):
        callee = _callee(value.op, mod)
        if isinstance(callee, ir.Function) and _checks(callee, mod):
            return False
        unknown = isinstance(value.op, ir.ExprVar) and not isinstance(value.op.ty, ir.FuncType)
        return is_pure_call(value, mod) and not unknown and not written_arguments(value, mod)
    if isinstance(value, ir.If):
        return is_removable(value.true_branch, mod) and is_removable(value.false_branch, mod)
    if isinstance(value, SeqExpr):
        bindings = [b for block in value.blocks for b in block.bindings]
        return is_removable(value.body, mod) and not any(
            isinstance(b, MatchCast) or not is_removable(b.value, mod) for b in bindings
        )
    return True


def is_foreign(value: ir.Expr) -> bool:
    """Whether a call is of a function from outside: a packed one, or one that a variable holds."""
    if not isinstance(value, ir.Call):
        return False
    if isinstance(value.op, ir.Op) and value.op.name in ("relax.call_pure_packed", "relax.call_inplace_packed"):
        return not getattr(value.args[0], "global_symbol", "").startswith("vm.builtin.")  # the machine's own are known
    return isinstance(value.op, ir.ExprVar)


def is_mergeable(
    value: ir.Expr, var: ir.ExprVar, mutable: AbstractSet[ir.ExprVar], mod: ir.IRModule | None = None
) -> bool:
    """Whether a value may be computed earlier, later, or once for two: nothing changes it or what it is made of.

    Parameters
    ----------
    var : ExprVar
        What the value is bound to.
    mutable : set of ExprVar
        The function's :func:`mutable_variables`.
    """
    return is_removable(value, mod) and var not in mutable and not any(v in mutable for v in variables(value))


def mutable_variables(
    func: ir.Function, mod: ir.IRModule | None = None, active: tuple[ir.Function, ...] = ()
) -> set[ir.ExprVar]:
    """Collect the variables whose memory a call in a function changes, through whatever name."""
    bindings = list(_bindings(func))
    written = {v for b in bindings for a in written_arguments(b.value, mod, active) for v in variables(a)}
    if not written:
        return written
    related: dict[ir.ExprVar, set[ir.ExprVar]] = {}
    for b in bindings:
        for v in _aliased(b, mod):
            related.setdefault(b.var, set()).add(v)
            related.setdefault(v, set()).add(b.var)
    return set(ir.reached(written, lambda v: related.get(v, ())))


def _name(call: Any) -> str:
    return call.op.name.removeprefix("relax.")


def _callee(op: ir.Node, mod: ir.IRModule | None) -> Any:
    return mod[op] if mod is not None and isinstance(op, ir.GlobalVar) and op in mod else None


def _tensors(args: Iterable[Any]) -> tuple[ir.Expr, ...]:
    return tuple(a for a in args if isinstance(a, (ir.ExprVar, ir.Tuple)))


def _written_places(func: tir.PrimFunc) -> tuple[frozenset[int], frozenset[int]]:
    """Say which parameters a kernel stores to, and which it gives away by address, so that others may."""
    if func not in _WRITTEN:
        nodes = ir.find(func.body, tir.BufferStore, ir.CallIntrin, tir.Block)
        stored = {n.buffer.data for n in nodes if isinstance(n, tir.BufferStore)}
        given: set[ir.Var] = set()
        for n in nodes:
            for r in getattr(n, "match_buffers", ()):
                stored |= {r.source.buffer.data} if r.buffer.data in stored else set()
            for a in n.args if isinstance(n, ir.CallIntrin) else ():
                given |= {a} if isinstance(a, ir.Var) and a.dtype == "handle" else set()
                given |= {a.buffer.data} if isinstance(a, tir.BufferLoad) and n.op.name == "tir.address_of" else set()
        places = [b.data if (b := func.buffer_of(p)) is not None else p for p in func.params]
        _WRITTEN[func] = (
            frozenset(i for i, m in enumerate(places) if m in stored),
            frozenset(i for i, m in enumerate(places) if m in given),
        )
    return _WRITTEN[func]


_WRITTEN: WeakKeyDictionary[tir.PrimFunc, tuple[frozenset[int], frozenset[int]]] = WeakKeyDictionary()


def _checks(func: ir.Function, mod: ir.IRModule | None) -> bool:
    """Whether a function, or one that it calls, checks something at run time or is impure."""
    seen, waiting = {func}, [func]
    while waiting:
        f = waiting.pop()
        for b in _bindings(f):
            value = b.value
            callee = _callee(value.op, mod) if isinstance(value, ir.Call) else None
            if isinstance(callee, ir.Function) and callee not in seen:
                seen.add(callee)
                waiting.append(callee)
            impure = (
                isinstance(value, ir.Call)
                and not is_pure_call(value, mod)
                and not (isinstance(value.op, ir.Op) and _name(value) in _ALLOCATIONS)
            )
            if isinstance(b, MatchCast) or impure:
                return True
    return False


def _bindings(root: ir.Expr) -> Iterable[Any]:
    """Iterate over the bindings below an expression, those of branches and of inner functions included."""
    stack = [root]
    while stack:
        e = stack.pop()
        if isinstance(e, SeqExpr):
            for block in e.blocks:
                yield from block.bindings
                stack += [b.value for b in block.bindings if isinstance(b.value, (ir.If, ir.Function))]
        elif isinstance(e, ir.If):
            stack += [e.true_branch, e.false_branch]
        elif isinstance(e, ir.Function):
            stack.append(e.body)


def _aliased(binding: Binding, mod: ir.IRModule | None) -> list[ir.ExprVar]:
    """List the variables whose memory the variable of a binding may share."""
    value = binding.value
    if isinstance(value, ir.If):
        ends = [b.body if isinstance(b, SeqExpr) else b for b in (value.true_branch, value.false_branch)]
        return [v for e in ends for v in variables(e)]
    if isinstance(value, ir.Call):
        if isinstance(value.op, ir.Op) and _name(value) not in VIEWS:
            return [v for a in written_arguments(value) for v in variables(a)]
        return [] if isinstance(_callee(value.op, mod), tir.PrimFunc) else variables(value)
    return variables(value) if isinstance(value, (ir.ExprVar, ir.Tuple, ir.TupleGetItem)) else []
