"""Passes over the functions of a module as wholes: one function applied to each, attributes, and which of them stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument
from weft.ir import CallIntrin, GlobalVar, IRModule, Node, Pass, find, function_pass, module_pass, rewrite
from weft.tir.analysis.structure import calls
from weft.tir.function import PrimFunc
from weft.tir.stmt import AssertStmt, Evaluate, SeqStmt, seq


def Apply(ftransform: Callable[[PrimFunc], PrimFunc]) -> Pass:
    """Make a pass of a function of one TIR function."""

    def run(mod: IRModule) -> IRModule:
        return mod.with_functions({v: ftransform(f) if isinstance(f, PrimFunc) else f for v, f in mod.items()})

    return Pass("tir.Apply", run, 0, ftransform.__doc__)


def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:
    """Make a pass that keeps the TIR functions for which `fcond` holds, and all that are none."""

    def run(mod: IRModule) -> IRModule:
        return mod.with_functions({v: f for v, f in mod.items() if not isinstance(f, PrimFunc) or fcond(f)})

    return Pass("tir.Filter", run, 0, fcond.__doc__)


def BindTarget(target: object) -> Pass:
    """Make a pass that gives TIR functions without a target one.

    What the host calls by its global symbol is for the target with its host. A function that only functions of the host
    call is for the host; one that is called from both sides gets a copy for the host.
    """

    def run(mod: IRModule) -> IRModule:
        return _Bound(mod, target).module()

    return Pass("tir.BindTarget", run, 0)


class _Bound:
    """The functions of a module, and on which side each is called."""

    def __init__(self, mod: IRModule, target: Any) -> None:
        self.mod, self.target, self.host = mod, target, getattr(target, "host", None)
        self.by_host, self.by_device = set[str](), set[str]()
        for _, f in mod.items():
            if isinstance(f, PrimFunc):
                own = f.attrs.get("target")
                on_host = bool(f.attrs.get("tir.is_host_func")) or (own is not None and own == self.host)
                called = {n.op.name_hint for n in find(f.body, CallIntrin) if isinstance(n.op, GlobalVar)}
                (self.by_host if on_host else self.by_device).update(called)

    def module(self) -> IRModule:
        """Return the module with targets."""
        made: dict[Any, Any] = {}
        copies: dict[GlobalVar, GlobalVar] = {}
        bare = self.target.with_host(None) if self.host is not None else self.target
        for v, f in self.mod.items():
            if not isinstance(f, PrimFunc) or f.attrs.get("target") is not None:
                made[v] = f
            elif f.attrs.get("tir.is_host_func"):
                if self.host is None:
                    raise InvalidArgument(
                        f"'{v.name_hint}' is for the host, and the target has none", help="give the target a host"
                    )
                made[v] = f.with_attr("target", self.host).without_attr("tir.is_host_func")
            elif f.attrs.get("global_symbol") is not None or self.host is None:
                made[v] = f.with_attr("target", self.target)
            elif v.name_hint not in self.by_host:
                made[v] = f.with_attr("target", bare)
            elif v.name_hint not in self.by_device:
                made[v] = f.with_attr("target", self.host)
            else:
                made[v] = f.with_attr("target", bare)
                copies[v] = type(v)(f"{v.name_hint}_host")
                made[copies[v]] = f.with_attr("target", self.host)
        if copies:
            made = {v: _redirected(f, copies) if self._on_host(f) else f for v, f in made.items()}
        return self.mod.with_functions(made)

    def _on_host(self, func: Any) -> bool:
        return isinstance(func, PrimFunc) and func.attrs.get("target") == self.host


def _redirected(func: PrimFunc, copies: dict[GlobalVar, GlobalVar]) -> PrimFunc:
    def rule(node: Node) -> Any:
        if isinstance(node, CallIntrin) and isinstance(node.op, GlobalVar) and node.op in copies:
            return CallIntrin(node.dtype, copies[node.op], node.args, node.attrs)
        return node

    return func.replace(body=rewrite(func.body, rule))


@module_pass
def annotate_entry_func(mod: IRModule) -> IRModule:
    """Mark the only function of a module, or the only one with a global symbol, as its entry.

    Requires: Any module.
    Ensures: The same; ``tir.is_entry_func`` is on one TIR function where there is one to choose.
    Before::

        @T.prim_func(private=True)
        def f(A: T.Buffer((16,), "float32")):
            A[0] = 1.0

    After::

        @T.prim_func(private=True)
        def f(A: T.Buffer((16,), "float32")):
            T.func_attr({"tir.is_entry_func": True})
            A[0] = 1.0
    Cost: Constant.
    Source: TVM's ``AnnotateEntryFunc``.
    """
    functions = [(v, f) for v, f in mod.items() if isinstance(f, PrimFunc)]
    public = [(v, f) for v, f in functions if f.attrs.get("global_symbol") is not None]
    chosen = functions if len(functions) == 1 else public
    if len(chosen) != 1 or chosen[0][1].attrs.get("tir.is_entry_func"):
        return mod
    var, func = chosen[0]
    return mod.with_functions({v: func.with_attr("tir.is_entry_func", True) if v is var else f for v, f in mod.items()})


@function_pass(kind=PrimFunc)
def skip_assert(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Remove assertions.

    Requires: Any form.
    Ensures: The same form without assertions.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            assert n > 0, "n is positive"
            A[0] = 1.0

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            A[0] = 1.0
    Cost: Linear.
    Source: TVM's ``SkipAssert``.
    """
    return func.replace(body=rewrite(func.body, lambda n: n.body if isinstance(n, AssertStmt) else n))


@function_pass(kind=PrimFunc)
def remove_assume(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Remove assumptions (``T.assume``).

    Requires: Any form.
    Ensures: The same form without assumptions.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            T.evaluate(T.assume(n > 0))
            A[0] = 1.0

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            A[0] = 1.0
    Cost: Linear.
    Source: TVM's ``RemoveAssume``.
    """

    def rule(node: Node) -> Any:
        if isinstance(node, SeqStmt):
            kept = [s for s in node.seq if not (isinstance(s, Evaluate) and calls(s.value, "assume"))]
            return node if len(kept) == len(node.seq) else seq(*kept)
        return node

    return func.replace(body=rewrite(func.body, rule))
