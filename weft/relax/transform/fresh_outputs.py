"""FreshOutputs: what a function gives to its caller shares memory with nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from weft import ir
from weft.relax.analysis.memory import MemorySets, is_function_call
from weft.relax.core_ops import call_builtin, is_op
from weft.relax.expr import BindingBlock, SeqExpr, Var, VarBinding

_FRESH = ("to_vdevice", "call_tir", "call_dps_packed", "builtin.alloc_tensor", "memory.alloc_tensor", "shape_to_tensor")


@ir.module_pass(opt_level=0)
def fresh_outputs(mod: ir.IRModule) -> ir.IRModule:
    """Copy results of public functions that share memory with an argument, a constant or another result.

    What is not known to be in memory of its own may be in that of its arguments: views, results of packed functions, of
    private functions and closures. Objects that are no tensors are left as they are, and so are results that the
    program writes into a parameter (``call_tir_inplace``). A copy stands at the end of the branch that needs it; a
    private function whose call is a function's end makes its results fresh itself, so that the call remains the end.

    Requires: Plain blocks before CallTIRRewrite.
    Ensures: The same. Each tensor that a function with ``global_symbol`` returns is its caller's alone.
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
    Cost: Linear.
    Source: The promise of ``docs/session.md``.
    """
    functions = {v.name_hint: f for v, f in mod.items() if isinstance(f, ir.Function) and isinstance(f.body, SeqExpr)}
    fresh = _giving_fresh(functions)
    changed = {v: _with_copies(functions[v.name_hint], fresh) for v, _ in mod.items() if v.name_hint in fresh}
    return mod.with_functions({**dict(mod.items()), **changed})


def _giving_fresh(functions: Mapping[str, ir.Function]) -> frozenset[str]:
    """Name the functions whose results are made fresh: public ones, and private ones that those end in.

    A private function that ends in a call of what is not known is none of them: a copy after it would use the stack.
    """
    ends = {name: list(map(_last_call, _ends(f.body))) for name, f in functions.items()}
    public = [name for name, f in functions.items() if f.attrs.get("global_symbol")]

    def called(name: str) -> set[str]:
        return {
            c.op.name_hint for c in ends[name] if c is not None and isinstance(c.op, ir.GlobalVar)
        } & functions.keys()

    found = set(ir.reached(public, called))
    left_alone = True
    while left_alone:
        left_alone = {name for name in found.difference(public) for call in ends[name] if _is_unknown(call, found)}
        found -= left_alone
    return frozenset(found)


def _is_unknown(call: ir.Call | None, fresh: Collection[str]) -> bool:
    """Whether a call is of a function whose results may not be fresh."""
    if call is None or not is_function_call(call):
        return False
    return not (isinstance(call.op, ir.GlobalVar) and call.op.name_hint in fresh)


def _ends(seq: Any) -> Iterator[SeqExpr]:
    """Yield what a body may end with: itself, or the ends of the branches whose value it returns."""
    chosen = _last_value(seq)
    if isinstance(chosen, ir.If):
        yield from _ends(chosen.true_branch)
        yield from _ends(chosen.false_branch)
    elif isinstance(seq, SeqExpr):
        yield seq


def _last_value(seq: Any) -> Any:
    """What a sequence returns, where that is the value of its last binding."""
    if not isinstance(seq, SeqExpr) or not seq.blocks or not seq.blocks[-1].bindings:
        return None
    last = seq.blocks[-1].bindings[-1]
    return last.value if last.var is seq.body else None


def _last_call(seq: SeqExpr) -> ir.Call | None:
    value = _last_value(seq)
    return value if isinstance(value, ir.Call) else None


def _with_copies(func: ir.Function, fresh: Collection[str]) -> ir.Function:
    memory = _Memory(fresh, frozenset(func.params))
    memory.of(func.body)
    return func.replace(body=_copied_at_ends(func.body, memory))


def _copied_at_ends(seq: Any, memory: _Memory) -> Any:
    chosen = _last_value(seq)
    if isinstance(chosen, ir.If):
        branches = [_copied_at_ends(b, memory) for b in (chosen.true_branch, chosen.false_branch)]
        if branches[0] is chosen.true_branch and branches[1] is chosen.false_branch:
            return seq
        *before, block = seq.blocks
        *kept, last = block.bindings
        choice = VarBinding(last.var, ir.If(chosen.cond, *branches, span=chosen.span, ty=chosen.ty))
        return SeqExpr((*before, BindingBlock((*kept, choice))), seq.body, span=seq.span, ty=seq.ty)
    if not isinstance(seq, SeqExpr):
        return seq
    results = _Results(memory)
    body = results.copied(seq.body, results.shared(memory.of(seq.body), seq.body.ty), seq.body.ty)
    if body is seq.body:
        return seq
    last = BindingBlock((*(seq.blocks[-1].bindings if seq.blocks else ()), *results.bindings))
    return SeqExpr((*seq.blocks[:-1], last), body, span=seq.span, ty=seq.ty)


class _Memory(MemorySets):
    """Where the values of a function lie whose parameters are its caller's."""

    def __init__(self, fresh: Collection[str], params: Collection[ir.ExprVar]) -> None:
        super().__init__()
        self._giving_fresh, self._params = fresh, params

    def of_call(self, call: ir.Call) -> set[int]:
        """Return where the result of a call may lie; what is not known to be its own may be in an argument."""
        own = is_function_call(call) and not _is_unknown(call, self._giving_fresh)
        if own or any(is_op(call, name) for name in _FRESH) or _is_copy(call):
            return self.fresh(call.ty)
        return self._overwritten(call) if "inplace_indices" in call.attrs else self.unknown(call)

    def _overwritten(self, call: ir.Call) -> set[int]:
        """Where results lie that overwrite arguments: of a parameter they are the argument, as the program asks."""
        kernel = is_op(call, "call_tir_inplace")
        args = getattr(call.args[1], "fields", ()) if kernel else call.args
        parts: list[set[int]] = []
        for place in call.attrs["inplace_indices"]:
            arg = args[place] if 0 <= place < len(args) else None
            if arg is None and not kernel:
                parts.append(self.unknown(call))
            else:
                parts.append(self.fresh(None) if arg is None or arg in self._params else self.within(self.of(arg)))
        return self.tuple_of(parts) if isinstance(call.ty, ir.TupleType) else parts[0]


def _is_copy(call: ir.Call) -> bool:
    return is_op(call, "call_builtin") and getattr(call.args[0], "global_symbol", "") == "vm.builtin.fresh_tensor"


class _Results:
    """Takes the parts of a result one after another, and copies those whose memory is not theirs alone."""

    def __init__(self, memory: MemorySets) -> None:
        self.bindings: list[VarBinding] = []
        self._memory, self._taken = memory, memory.lasting

    def shared(self, places: set[int], ty: ir.Type | None) -> Any:
        """Say of a result, and in a tuple for those of a tuple, whether it needs a copy."""
        if isinstance(ty, ir.TupleType):
            found = tuple(self.shared(self._memory.item(places, i), t) for i, t in enumerate(ty.fields))
            return found if any(found) else False
        where = self._memory.within(places)
        if not isinstance(ty, ir.TensorType) or where & self._taken:
            return isinstance(ty, ir.TensorType)
        self._taken = self._taken | where
        return False

    def copied(self, value: ir.Expr, shared: Any, ty: Any) -> Any:
        """Return a value with copies of what is shared."""
        if not shared:
            return value
        if shared is True:
            call = call_builtin("vm.builtin.fresh_tensor", [value], ty)
            return self._bind(ir.Call(call.op, call.args, call.attrs, call.ty_args, ty=ty), "fresh", ty)
        parts = [
            value.fields[i] if isinstance(value, ir.Tuple) else self._bind(ir.TupleGetItem(value, i, ty=t), "item", t)
            for i, t in enumerate(ty.fields)
        ]
        made = [self.copied(p, s, t) for p, s, t in zip(parts, shared, ty.fields, strict=True)]
        return self._bind(ir.Tuple(tuple(made), ty=ty), "fresh", ty)

    def _bind(self, value: ir.Expr, hint: str, ty: ir.Type) -> Var:
        self.bindings.append(VarBinding(Var(hint, ty), value))
        return self.bindings[-1].var
