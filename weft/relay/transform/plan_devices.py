"""PlanDevices: every value has a device, and copies stand where a value is needed on another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft import error, ir
from weft.ir import TensorType as IRTensorType
from weft.ir import TupleType as IRTupleType
from weft.relay import expr as nodes
from weft.relay.adt import Match
from weft.relay.op.registry import get, has
from weft.relay.transform.device_constraints import PARAM_DEVICES, RESULT_DEVICES, DeviceConstraints
from weft.relay.transform.device_domains import device_of, leaves
from weft.relay.transform.nested import with_bodies

KERNEL_DEVICE = "device_index"
"""The attribute of a TIR function that runs on devices of another kind than the first."""

_OPERANDS: dict[type, tuple[str, ...]] = {
    nodes.If: ("cond",),
    Match: ("data",),
    nodes.RefCreate: ("value",),
    nodes.RefRead: ("ref",),
    nodes.RefWrite: ("ref", "value"),
    nodes.TupleGetItem: ("tuple_value",),
}


@ir.module_pass
def plan_devices(mod: ir.IRModule, devices: Sequence[str] = ("cpu:0",), host: int = 0) -> ir.IRModule:
    """Decide on which device each value is, from what ``on_device`` says, and copy where that is not where it is used.

    Parameters
    ----------
    devices : sequence of str
        The machine's list of devices; what nothing places is on the first.
    host : int
        The place of the CPU that holds shapes and the scalars that decide what runs.

    Requires: A-normal form with types, before LowerRegions or after ManifestAlloc.
    Ensures: No ``on_device``, except around constants of other devices than the first. Operators find their arguments
        on the device of their result. ``device_copy`` has numbers for devices, as have storages and the attributes
        ``param_devices`` and ``result_devices`` of functions.
    With ``devices=["cpu:0", "cpu:1"]``, before::

        def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
          let %a: Tensor[(2), float32] = add(%x, %x);
          let %b: Tensor[(2), float32] = on_device(%a, device="cpu:0", constrain_result=0, constrain_body=1);
          let %c: Tensor[(2), float32] = exp(%b);
          let %d: Tensor[(2), float32] = on_device(%c, device="cpu:1", constrain_result=0, constrain_body=1);
          %d
        }

    After::

        def @main(%x: Tensor[(2), float32], param_devices=[[0]], result_devices=[1]) -> Tensor[(2), float32] {
          let %a: Tensor[(2), float32] = add(%x, %x);
          let %b: Tensor[(2), float32] = device_copy(%a, src_device=0, dst_device=1);
          let %c: Tensor[(2), float32] = exp(%b);
          let %d: Tensor[(2), float32] = %c;
          %d
        }
    Cost: Nearly linear.
    Source: TVM's ``PlanDevices``.
    """
    named = {name: i for i, name in enumerate(devices)}
    lonely = mod.with_functions(
        {v: _LonelyConstants(f).function() if isinstance(f, nodes.Function) else f for v, f in mod.items()}
    )
    return ir.with_deep_stack(lambda: _Plan(lonely, named, host).module())


class _LonelyConstants:
    """Puts constants where they are used, each use in a call of its own, which then knows the use's device."""

    def __init__(self, func: nodes.Function) -> None:
        self.func = func
        self.named: dict[Any, nodes.Constant] = {}

    def function(self) -> nodes.Function:
        return ir.with_fields(self.func, body=self.body(self.func.body))

    def body(self, expr: nodes.Expr) -> Any:
        bindings, tail = nodes.let_chain(expr)
        kept = []
        for var, value in bindings:
            if isinstance(value, nodes.Constant):
                self.named[var] = value
            else:
                kept.append((var, self.operation(value)))
        return nodes.lets(kept, self.operation(tail))

    def operation(self, e: nodes.Expr) -> Any:
        if isinstance(e, (nodes.Var, nodes.Constant)):
            return self.lonely(e)
        if isinstance(e, nodes.Call):
            is_value = _values(e)
            args = [self.named.get(a, a) if is_value(i) else self.operation(a) for i, a in enumerate(e.args)]
            return ir.with_fields(e, args=tuple(args))
        if isinstance(e, nodes.Tuple):
            return ir.with_fields(e, fields=tuple(map(self.operation, e.fields)))
        return with_bodies(_with_operands(e, self.operation), self.body)

    def lonely(self, e: nodes.Expr) -> Any:
        constant = self.named.get(e, e)
        if not isinstance(constant, nodes.Constant):
            return e
        attrs = ir.Attrs.of(device=0, constrain_result=False, constrain_body=False)
        return nodes.Call(ir.Op.get("on_device"), (constant,), attrs, ty=constant.ty)


def _values(call: nodes.Call) -> Callable[[int], bool]:
    """Make the question whether the elements of an argument are dimensions or sizes, which are where no device is."""
    if isinstance(call.op, ir.Op) and call.op.name == "memory.alloc_storage":
        return lambda i: True
    if not isinstance(call.op, ir.Op) or not has(call.op.name) or get(call.op).expand is None:
        return lambda i: False
    inputs = get(call.op).inputs
    return lambda i: bool(inputs) and inputs[min(i, len(inputs) - 1)].kind == "values"


class _Plan:
    def __init__(self, mod: ir.IRModule, devices: dict[str, int], host: int) -> None:
        self.mod = mod
        self.constraints = DeviceConstraints(mod, devices, host)
        self.copies = self.constraints.wishes.grant(0)
        self.kinds = {i: name.split(":")[0] for name, i in devices.items()}
        self.kinds.setdefault(host, "cpu")
        self.kernels: dict[nodes.GlobalVar, ir.BaseFunc] = {}
        self.bindings: list[tuple[nodes.Var, Any]] = []  # of the chain that is rewritten
        self.made: dict[tuple[Any, int], nodes.Var] = {}  # copies that the chain has: of what, where

    def module(self) -> ir.IRModule:
        functions = {v: self.function(v.name_hint, f) for v, f in self.mod.items() if isinstance(f, nodes.Function)}
        others = {v: f for v, f in self.mod.items() if not isinstance(f, nodes.Function)}
        return self.mod.with_functions({**others, **functions, **self.kernels})

    def kernel(self, var: nodes.GlobalVar, device: int) -> nodes.GlobalVar:
        """Return a kernel for a device: of another kind than the first, a copy under a name of its own."""
        if var not in self.mod:  # an external compiler makes it
            return var
        kernel: Any = self.mod[var]
        if self.kinds[device] == self.kinds[0] or kernel.attrs.get(KERNEL_DEVICE) is not None:
            return var
        device = next(i for i, kind in self.kinds.items() if kind == self.kinds[device])
        made = nodes.GlobalVar(f"{var.name_hint}_device_{device}")
        self.kernels.setdefault(made, kernel.with_attr({"global_symbol": made.name_hint, KERNEL_DEVICE: device}))
        return made

    def function(self, name: str, func: nodes.Function) -> nodes.Function:
        domain = self.constraints.functions[name]
        attrs = {
            PARAM_DEVICES: tuple(tuple(device_of(leaf, 0) for leaf in leaves(a)) for a in domain.args),
            RESULT_DEVICES: tuple(device_of(leaf, 0) for leaf in leaves(domain.result)),
        }
        planned = all(func.attrs.get(k) == v for k, v in attrs.items())
        return ir.with_fields(func if planned else func.with_attr(attrs), body=self.body(func.body))

    def body(self, expr: nodes.Expr) -> Any:
        """Rewrite a chain of lets; what its operations need from other devices is bound in front of them."""
        bindings, tail = nodes.let_chain(expr)
        outer, outer_made = self.bindings, self.made
        self.bindings, self.made = [], dict(outer_made)
        for v, value in bindings:
            before = len(self.bindings)
            new = self.operation(value)
            if len(self.bindings) > before and new is self.bindings[-1][0]:  # the copy itself is what is named
                copied, new = self.bindings.pop()
                self.made = {k: v if m is copied else m for k, m in self.made.items()}
            self.bindings.append((v, new))
        tail = self.operation(tail)
        done, self.bindings, self.made = self.bindings, outer, outer_made
        return nodes.lets(done, tail)

    def named(self, value: Any) -> nodes.Var:
        """Bind a value in front of the operation that is rewritten."""
        var = nodes.Var("there", value.ty)
        self.bindings.append((var, value))
        return var

    def operation(self, e: nodes.Expr) -> Any:
        """Rewrite an operation and its operands."""
        if isinstance(e, nodes.Call):
            if isinstance(e.op, ir.Op) and e.op.name == "on_device":
                return self.on_device(e)
            args = tuple(self.operand(e, i, a) for i, a in enumerate(e.args))
            if isinstance(e.op, ir.Op) and e.op.name == "vm.invoke_tvm_op":
                args = (self.kernel(args[0], device_of(self.constraints.kernels[e], 0)), *args[1:])
            return ir.with_fields(e, args=args, attrs=self.attrs(e))
        if isinstance(e, nodes.Tuple):
            return ir.with_fields(e, fields=tuple(self.operand(e, i, f) for i, f in enumerate(e.fields)))
        if isinstance(e, nodes.If):
            cond = self.operand(e, 0, e.cond)
            return ir.with_fields(with_bodies(e, self.body), cond=cond)
        return with_bodies(_with_operands(e, self.operation), self.body)

    def attrs(self, e: nodes.Call) -> ir.Attrs:
        name = e.op.name if isinstance(e.op, ir.Op) else ""
        if name == "memory.alloc_storage":
            return e.attrs.with_(device_index=device_of(self.constraints.results[e], 0))
        if name == "device_copy":
            return e.attrs.with_(**{k: self.constraints.place(e.attrs[k], e) for k in ("src_device", "dst_device")})
        return e.attrs

    def on_device(self, e: nodes.Call) -> Any:
        made = self.constraints.results[e]
        if not isinstance(e.args[0], nodes.Constant):
            return self.operand(e, 0, e.args[0])
        device = device_of(made, 0)
        if device == 0:
            return e.args[0]
        return self.named(ir.with_fields(e, attrs=e.attrs.with_(device=device, constrain_result=True)))

    def operand(self, owner: Any, index: int, e: nodes.Expr) -> Any:
        """Rewrite an operand, and copy what is in it to where its user needs it."""
        made = self.operation(e)
        moves = self.copies.get((owner, index))
        return made if moves is None else self.copied(made, e.ty, moves, itertools.count())

    def copied(self, e: Any, ty: Any, moves: dict[int, tuple[int, int]], numbers: Iterator[int]) -> Any:
        """Copy the tensors in a value that `moves` names by number."""
        if isinstance(ty, IRTupleType):
            fields = [nodes.TupleGetItem(e, i, ty=t) for i, t in enumerate(ty.fields)]
            copies = [self.copied(self.named(f), f.ty, moves, numbers) for f in fields]
            return self.named(nodes.Tuple(tuple(copies), ty=ty))
        move = moves.get(next(numbers))
        if move is None:
            return e
        if not isinstance(ty, IRTensorType):
            raise error.LoweringError("only tensors are copied between devices", found=str(ty), where=e.span)
        known = self.made.get((e, move[1]))
        if known is None:
            attrs = ir.Attrs.of(src_device=move[0], dst_device=move[1])
            known = self.made[e, move[1]] = self.named(nodes.Call(ir.Op.get("device_copy"), (e,), attrs, ty=ty))
        return known


def _with_operands(e: nodes.Expr, f: Callable[[Any], Any]) -> Any:
    """Rewrite the operands of what is neither a call nor a tuple."""
    names = _OPERANDS.get(type(e), ())
    return ir.with_fields(e, **{n: f(getattr(e, n)) for n in names}) if names else e
