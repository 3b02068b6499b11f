"""PlanDevices for targets: every expression has a virtual device, and copies stand where ``on_device`` allows them.

The virtual machine's own planning (``plan_devices``) copies at each use; here, as in TVM, what an operator, tuple,
branch or call holds together is on one device, and only results of ``on_device`` and ``device_copy`` may be elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.ir.deep import with_deep_stack
from weft.relay import expr as nodes
from weft.relay.adt import Constructor, Match, Pattern
from weft.relay.infer import infer_module
from weft.relay.transform.device_domains import Domain, FunctionDomain, both, fix, join, leaves, typed_domain
from weft.relay.transform.plan_devices import plan_devices
from weft.relay.walk import operator_name, pattern_vars
from weft.target import CompilationConfig, VirtualDevice

RESULT, PARAMS = "virtual_device", "param_virtual_devices"
"""Attributes of a planned function: where its result is, and where each parameter."""

# Arguments and result of operators: "h" is on the host, "x" where the others are, "?" anywhere.
_PLACES = {
    "memory.alloc_storage": "h?",
    "memory.alloc_tensor": "xhx",
    "vm.shape_of": "?h",
    "vm.invoke_tvm_op": "?xxx",
    "vm.reshape_tensor": "xhx",
}
_POLYMORPHIC = (ir.Op, Constructor, nodes.GlobalVar, nodes.Var, nodes.Function)  # say themselves where they are


def PlanDevices(devices: CompilationConfig | Sequence[str] = ("cpu:0",), host: int = 0) -> ir.Pass:
    """Make the pass that decides on which device each value is, from ``on_device`` and ``device_copy``.

    Parameters
    ----------
    devices : CompilationConfig or sequence of str
        What ``target.make_compilation_config`` returns: expressions of any form are planned as TVM plans them, over
        virtual devices and memory scopes. Functions say where values are by ``virtual_device`` and
        ``param_virtual_devices``. Or the names of a machine's devices, for programs in A-normal form.
    host : int
        With names, the place of the host among them.

    Raises
    ------
    InvalidArgument
        When a value would have to be on two devices, or on one that there is no target for.
    """
    if not isinstance(devices, CompilationConfig):
        return plan_devices(devices=devices, host=host)

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Plan, and copy where ``on_device`` allows it."""
        fixed = mod.with_functions(
            {
                v: with_deep_stack(lambda f=f: ir.rewrite(f, _moved)) if isinstance(f, nodes.Function) else f
                for v, f in infer_module(mod).items()
            }
        )
        return infer_module(with_deep_stack(lambda: _Plan(fixed, devices).module()))

    return ir.Pass("PlanDevices", run, 0, PlanDevices.__doc__)


def _moved(e: nodes.Expr) -> Any:
    """Copy elements of tuples and not the tuples; what a let or a function holds is fixed where it is computed."""

    def wish(x: Any) -> bool:
        return operator_name(x) == "on_device" and bool(x.attrs["constrain_body"]) and not x.attrs["constrain_result"]

    def fixed(x: Any) -> Any:
        return nodes.Call(x.op, x.args, x.attrs.with_(constrain_result=True), ty=x.ty)

    if isinstance(e, nodes.TupleGetItem) and wish(e.tuple_value):
        there: Any = e.tuple_value
        inner = nodes.TupleGetItem(there.args[0], e.index, ty=e.ty)
        return nodes.Call(there.op, (inner,), there.attrs, ty=e.ty)
    if isinstance(e, nodes.Let) and wish(e.value):
        return nodes.Let(e.var, fixed(e.value), e.body, span=e.span, ty=e.ty)
    return e.replace(body=fixed(e.body)) if isinstance(e, nodes.Function) and wish(e.body) else e


def _children(e: nodes.Expr) -> list[Any]:
    """List the expressions in an expression, in order."""
    if isinstance(e, Match):
        return [e.data, *(c.rhs for c in e.clauses)]
    return [c for c in ir.children(e) if isinstance(c, ir.Expr) and not isinstance(c, (ir.Op, Constructor))]


def _result(domain: Any) -> Any:
    while isinstance(domain, FunctionDomain):
        domain = domain.result
    return domain


class _Plan:
    def __init__(self, mod: ir.IRModule, config: CompilationConfig) -> None:
        self.mod, self.config = mod, config
        self.domains: dict[Any, Any] = {}
        self.callees: dict[Any, FunctionDomain] = {}
        self.made: dict[Any, Any] = {}
        self.functions = {v.name_hint: f for v, f in mod.items() if isinstance(f, nodes.Function)}
        order: dict[Any, None] = {}
        for f in self.functions.values():
            self.visit(f, order)
        for e in order:
            self.constrain(e)
        for e in reversed(order):  # operands before what uses them
            if operator_name(e) == "on_device" and not (e.attrs["constrain_body"] or e.attrs["constrain_result"]):
                here, body = self.domain(e), self.domain(e.args[0])
                pairs = zip(leaves(here), leaves(body), strict=False)
                if all(None in (d := (a.root().device, b.root().device)) or both(*d) for a, b in pairs):
                    join(here, body, e)
        for e in order:
            self.default(e)

    def visit(self, e: nodes.Expr, order: dict[Any, None]) -> None:
        """List expressions, those around others first."""
        while e not in order:
            order[e] = None
            if isinstance(e, nodes.Function) and e.attrs.get("Primitive"):
                return
            *others, last = _children(e) or [e]
            for c in others:
                self.visit(c, order)
            e = last

    def domain(self, e: Any) -> Any:
        """Return the domain of an expression, by its type; binders share those of what they bind."""
        if isinstance(e, nodes.GlobalVar) and e.name_hint in self.functions:
            e = self.functions[e.name_hint]
        chain = []
        while isinstance(e, nodes.Let) and e not in self.domains:
            chain.append(e)
            e = e.body
        if e not in self.domains:
            if isinstance(e, nodes.Function):
                self.domains[e] = FunctionDomain(tuple(map(self.domain, e.params)), self.domain(e.body))
            else:
                self.domains[e] = typed_domain(e.ty)
        for let in chain:
            self.domains[let] = self.domains[e]
        return self.domains[e]

    def callee(self, e: nodes.Call) -> FunctionDomain:
        """Return where a call's callee takes its arguments and leaves its result."""
        if e in self.callees:
            return self.callees[e]
        made = FunctionDomain(tuple(typed_domain(a.ty) for a in e.args), typed_domain(e.ty))
        name = e.op.name if isinstance(e.op, ir.Op) else ""
        places: tuple[Any, ...] = ()
        if name == "on_device":
            device = e.attrs["device"]
            places = tuple(device if e.attrs[f"constrain_{k}"] else None for k in ("body", "result"))
        elif name == "device_copy":
            places = e.attrs["src_device"], e.attrs["dst_device"]
        elif isinstance(e.op, (ir.Op, Constructor)) or (
            isinstance(e.op, nodes.Function) and e.op.attrs.get("Primitive")
        ):
            shared = {"h": Domain(self.config.host_virtual_device), "x": Domain()}
            for sign, part in zip(_PLACES.get(name, "x" * (len(e.args) + 1)), (*made.args, made.result), strict=True):
                join(part, shared[sign] if sign in shared else part, e)
            if name == "memory.alloc_storage" and isinstance(e.attrs.get("device_index"), VirtualDevice):
                places = (None,) * len(e.args) + (e.attrs["device_index"],)
        else:
            join(self.domain(e.op), made, e)
        for place, part in zip(places, (*made.args, made.result), strict=False):
            self.fix(part, place, e)
        self.callees[e] = made
        return made

    def fix(self, domain: Any, place: Any, where: Any) -> None:
        """Let a value, or a function's result, be where something says, if it does."""
        if place is not None:
            fix(_result(domain), self.config.canonical(place), where)

    def constrain(self, e: nodes.Expr) -> None:
        """Let what an expression holds together be on one device."""
        here = self.domain(e)
        if isinstance(e, nodes.Call):
            join(self.callee(e), FunctionDomain(tuple(map(self.domain, e.args)), here), e)
        elif isinstance(e, nodes.Let):
            join(self.domain(e.var), self.domain(e.value), e)
        elif isinstance(e, nodes.Function):
            places = (e.attrs.get(RESULT), *e.attrs.get(PARAMS, ()))
            for place, part in zip(places, (here.result, *here.args), strict=False):
                self.fix(part, place, e)
        elif not isinstance(e, (nodes.Var, nodes.GlobalVar, nodes.Constant)):
            for c in (*_children(e), *(v for k in getattr(e, "clauses", ()) for v in pattern_vars(k.lhs))):
                join(self.domain(c), here, e)

    def default(self, e: nodes.Expr) -> None:
        """Place what nothing has placed: results on the default device, then parameters where the result is."""
        if isinstance(e, (nodes.Function, nodes.Call)):
            domain = self.callee(e) if isinstance(e, nodes.Call) else self.domain(e)
            self.settle(domain.result, self.config.default_primitive_virtual_device)
            for a in domain.args:
                self.settle(a, _result(domain).root().device)
        elif isinstance(e, nodes.Let):
            self.settle(self.domain(e.var), self.device(e))

    def settle(self, domain: Any, device: VirtualDevice) -> None:
        for leaf in leaves(domain):
            root = leaf.root()
            root.device = device if root.device is None else both(root.device, device) or root.device

    def device(self, e: Any) -> VirtualDevice:
        """Return where an expression is, or what ``on_device`` is about."""
        while operator_name(e) == "on_device":
            e = e.args[0]
        return _result(self.domain(e)).root().device or self.config.default_primitive_virtual_device

    def module(self) -> ir.IRModule:
        return self.mod.with_functions(
            {v: self.rewrite(f) if isinstance(f, nodes.Function) else f for v, f in self.mod.items()}
        )

    def rewrite(self, e: ir.Node) -> Any:
        """Return an expression with copies, and without the annotations that there were."""
        if e not in self.made:
            self.made[e] = self._rewritten(e)
        return self.made[e]

    def _rewritten(self, e: Any) -> Any:
        here = self.device(e)
        if operator_name(e) == "on_device":
            return self.rewrite(e.args[0])
        if operator_name(e) == "device_copy":
            source = self.config.canonical(e.attrs["src_device"])
            return self.child(here, here, e.args[0], source)
        if isinstance(e, nodes.Function):
            if e.attrs.get("Primitive"):
                return e
            domain = self.domain(e)
            there = _result(domain).root().device
            places = {RESULT: there, PARAMS: tuple(_result(a).root().device for a in domain.args)}
            return e.replace(body=self.child(there, there, e.body)).with_attr(places)
        if isinstance(e, nodes.Call):
            wanted = [_result(a).root().device for a in self.callee(e).args]
            args = tuple(self.child(here, w, a) for w, a in zip(wanted, e.args, strict=True))
            return nodes.Call(self.child(here, here, e.op), args, e.attrs, span=e.span, ty=e.ty)
        if isinstance(e, nodes.Let):
            bindings, tail = nodes.let_chain(e)
            kept = [(v, self.child(None, self.device(v), value)) for v, value in bindings]
            return nodes.lets(kept, self.child(here, here, tail))

        def inside(c: Any) -> Any:
            if isinstance(c, (ir.Type, Pattern)):
                return c
            return self.child(here, here, c) if isinstance(c, ir.Expr) else ir.rebuild(c, inside)

        return e if isinstance(e, (nodes.Var, nodes.GlobalVar, nodes.Constant)) else ir.rebuild(e, inside)

    def child(self, around: Any, wanted: VirtualDevice, e: Any, have: VirtualDevice | None = None) -> Any:
        """Rewrite an operand that is needed at `wanted`, in what is at `around`."""
        if isinstance(e, (ir.Op, Constructor)):
            return e
        made, have = self.rewrite(e), have or self.device(e)
        if have != wanted:
            attrs = ir.Attrs.of(src_device=have, dst_device=wanted)
            made = nodes.Call(ir.Op.get("device_copy"), (_fixed(made, have),), attrs, ty=e.ty)
        return made if wanted == around else _fixed(made, wanted)


def _fixed(e: nodes.Expr, device: VirtualDevice) -> Any:
    """Say where an expression is, where it does not say it itself."""
    if isinstance(e, _POLYMORPHIC):
        return e
    attrs = ir.Attrs.of(device=device, constrain_result=True, constrain_body=True)
    return nodes.Call(ir.Op.get("on_device"), (e,), attrs, ty=e.ty)
