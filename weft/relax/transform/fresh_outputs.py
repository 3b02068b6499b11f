"""FreshOutputs: what a function gives to its caller shares memory with nothing else."""

from __future__ import annotations

from itertools import count
from typing import Any

from weft.ir import (
    Call,
    Constant,
    Expr,
    ExprVar,
    Function,
    GlobalVar,
    If,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    function_pass,
)
from weft.relax.core_ops import call_builtin, is_op
from weft.relax.expr import BindingBlock, SeqExpr, Var, VarBinding

__all__ = ["fresh_outputs"]

_FOREIGN = frozenset((0,))
"""Memory that outlives the call: arguments, constants."""
_FRESH = ("call_tir", "call_dps_packed", "builtin.alloc_tensor", "memory.alloc_tensor", "shape_to_tensor")

Memory = Any
"""What a value may lie in: a set of numbers, or, where the parts of a tuple are known, a tuple of them."""


@function_pass(kind=Function, opt_level=0)
def fresh_outputs(func: Function, mod: IRModule) -> Function:
    """Copy results of public functions that share memory with an argument, a constant or another result.

    What is not known to be in memory of its own may be in that of its arguments: views, results of packed functions,
    of private functions and closures. Objects that are no tensors are left as they are.

    Requires
        Plain blocks before CallTIRRewrite.
    Ensures
        The same. Each tensor that a function with ``global_symbol`` returns is its caller's alone.
    Example
        Before::

            @R.function
            def main(x: R.Tensor((4,), "float32")):
                y = R.reshape(x, R.shape([2, 2]))
                return y

        After::

            @R.function
            def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 2), "float32"):
                y: R.Tensor((2, 2), "float32") = R.reshape(x, R.shape([2, 2]))
                fresh: R.Tensor((2, 2), "float32") = R.call_builtin("vm.builtin.fresh_tensor", (y,),
                    ty_args=(R.Tensor((2, 2), "float32"),))
                return fresh
    Cost
        Linear.
    Source
        The promise of ``docs/session.md``.
    """
    if not func.attrs.get("global_symbol") or not isinstance(func.body, SeqExpr):
        return func
    memory = _Memory(mod)
    for p in func.params:
        memory.of_var[id(p)] = _FOREIGN
    found = memory.of_seq(func.body)
    results = _Results()
    body = results.copied(func.body.body, results.shared(found, func.body.body.ty), func.body.body.ty)
    if body is func.body.body:
        return func
    blocks = func.body.blocks
    last = BindingBlock((*(blocks[-1].bindings if blocks else ()), *results.bindings))
    return func.replace(body=SeqExpr((*blocks[:-1], last), body, span=func.body.span, ty=func.body.ty))


class _Memory:
    """What memory the values of a function may lie in."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.of_var: dict[int, Memory] = {}
        self._numbers = count(1)

    def of_seq(self, seq: Any) -> Memory:
        """Walk bindings, and return where the result lies."""
        if not isinstance(seq, SeqExpr):
            return self.of(seq)
        for binding in (b for block in seq.blocks for b in block.bindings):
            self.of_var[id(binding.var)] = self.of(binding.value)
        return self.of(seq.body)

    def of(self, value: Any) -> Memory:
        """Return where a value may lie."""
        if isinstance(value, (ExprVar, Constant)):
            return self.of_var.get(id(value), _FOREIGN)
        if isinstance(value, Tuple):
            return tuple(self.of(f) for f in value.fields)
        if isinstance(value, TupleGetItem):
            whole = self.of(value.tuple_value)
            return whole[value.index] if isinstance(whole, tuple) else whole
        if isinstance(value, If):
            return _either(self.of_seq(value.true_branch), self.of_seq(value.false_branch))
        if not isinstance(value, Call):
            return self._new()
        if any(is_op(value, name) for name in _FRESH) or self._is_public(value.op) or _is_copy(value):
            return self._fresh(value.ty)
        lasting = _FOREIGN if isinstance(value.op, (GlobalVar, ExprVar)) or _invokes(value) else frozenset[int]()
        return lasting.union(self._new(), *(_all(self.of(a)) for a in (value.op, *value.args) if isinstance(a, Expr)))

    def _is_public(self, callee: Any) -> bool:
        """Whether a call is of a function whose results this pass makes fresh."""
        target = self.mod[callee] if isinstance(callee, GlobalVar) and callee.name_hint in self.mod else None
        return isinstance(target, Function) and bool(target.attrs.get("global_symbol"))

    def _fresh(self, ty: Type | None) -> Memory:
        return tuple(self._fresh(t) for t in ty.fields) if isinstance(ty, TupleType) else self._new()

    def _new(self) -> frozenset[int]:
        return frozenset((next(self._numbers),))


def _is_copy(call: Call) -> bool:
    return is_op(call, "call_builtin") and getattr(call.args[0], "global_symbol", "") == "vm.builtin.fresh_tensor"


def _invokes(call: Call) -> bool:
    return is_op(call, "invoke_closure") or is_op(call, "invoke_pure_closure")


def _all(memory: Memory) -> frozenset[int]:
    return frozenset[int]().union(*map(_all, memory)) if isinstance(memory, tuple) else memory


def _either(a: Memory, b: Memory) -> Memory:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(_either(x, y) for x, y in zip(a, b, strict=True))
    return _all(a) | _all(b)


class _Results:
    """Takes the parts of a result one after another, and copies those whose memory is not theirs alone."""

    def __init__(self) -> None:
        self.bindings: list[VarBinding] = []
        self._taken = _FOREIGN

    def shared(self, memory: Memory, ty: Type | None) -> Any:
        """Say of a result, and in a tuple for those of a tuple, whether it needs a copy."""
        if isinstance(ty, TupleType):
            parts = memory if isinstance(memory, tuple) else (memory,) * len(ty.fields)
            found = tuple(self.shared(m, t) for m, t in zip(parts, ty.fields, strict=True))
            return found if any(found) else False
        where = _all(memory)
        if not isinstance(ty, TensorType) or where & self._taken:
            return isinstance(ty, TensorType)
        self._taken |= where
        return False

    def copied(self, value: Any, shared: Any, ty: Any) -> Any:
        """Return a value with copies of what is shared."""
        if not shared:
            return value
        if shared is True:
            call = call_builtin("vm.builtin.fresh_tensor", [value], ty)
            return self._bind(Call(call.op, call.args, call.attrs, call.ty_args, ty=ty), "fresh", ty)
        parts = [value.fields[i] if isinstance(value, Tuple) else self._bind(TupleGetItem(value, i, ty=t), "item", t)
                 for i, t in enumerate(ty.fields)]  # fmt: skip
        made = [self.copied(p, s, t) for p, s, t in zip(parts, shared, ty.fields, strict=True)]
        return self._bind(Tuple(tuple(made), ty=ty), "fresh", ty)

    def _bind(self, value: Any, hint: str, ty: Type) -> Var:
        self.bindings.append(VarBinding(Var(hint, ty), value))
        return self.bindings[-1].var
