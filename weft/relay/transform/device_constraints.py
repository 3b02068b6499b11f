"""What each kind of expression says about devices: the rules by which PlanDevices places values."""

from typing import Any

from weft import error, ir
from weft.relay import expr as nodes
from weft.relay.adt import Constructor, Match
from weft.relay.op.registry import get, has
from weft.relay.scalars import scalar_operation
from weft.relay.transform.device_domains import Domain, FunctionDomain, Wishes, domain_of, fix, join, leaves
from weft.relay.walk import pattern_vars

PARAM_DEVICES, RESULT_DEVICES = "param_devices", "result_devices"
"""Attributes of a planned function: for each parameter, and for the result, the devices of the tensors in it."""

# Lets are looped over.
where_is = ir.Dispatch("device of a Relay expression", (nodes.Operators,), leaves_out=(nodes.Operators, nodes.Let))


class DeviceConstraints:
    """The domains of a module's functions, variables and constants.

    Parameters
    ----------
    mod : IRModule
        Typed functions in A-normal form.
    devices : dict of str to int
        The place of each device in the machine's list.
    host : int
        The place of the CPU that holds shapes, and the scalars that decide what runs.
    """

    def __init__(self, mod: ir.IRModule, devices: dict[str, int], host: int) -> None:
        self.devices, self.host = devices, host
        self.wishes = Wishes()
        self.vars: dict[nodes.Var, Any] = {}
        self.results: dict[ir.Expr, Any] = {}  # of calls and constants
        self.kernels: dict[nodes.Call, Domain] = {}
        self.functions: dict[str, Any] = {}
        for v, f in mod.items():
            if isinstance(f, nodes.Function):
                domain = FunctionDomain(tuple(domain_of(p.ty) for p in f.params), domain_of(f.ret_type or f.body.ty))
                self.functions[v.name_hint] = domain
                _planned(f, domain)
        for v, f in mod.items():
            if isinstance(f, nodes.Function):
                self.function(f, self.functions[v.name_hint])

    def function(self, func: nodes.Function, domain: Any) -> None:
        """Place a function's parameters and body."""
        self.vars.update(zip(func.params, domain.args, strict=True))
        join(self.of(func.body), domain.result, func)

    def of(self, expr: nodes.Expr) -> Any:
        """Return the domain of an expression, after those of the lets in front of it."""
        bindings, expr = nodes.let_chain(expr)
        for var, value in bindings:
            if isinstance(value, nodes.Function):  # may refer to itself
                self.vars[var] = domain_of(value.ty)
                join(self.vars[var], self.of(value), value)
            else:
                self.vars[var] = self.of(value)
        return where_is(expr, self)

    def place(self, device: Any, where: Any) -> int:
        """Return a device's place in the machine's list."""
        if isinstance(device, int):
            return device
        found = self.devices.get(str(device))
        if found is None:
            raise error.InvalidArgument(
                f"the program uses the device {device}, which there is no target for",
                where=where,
                found=", ".join(self.devices),
                help="compile with targets for all devices: {device: target}",
            )
        return found

    def wish(self, owner: Any, index: int, arg: nodes.Expr, want: Any) -> None:
        """Wish that the operand `index` of an expression is where the expression needs it."""
        if isinstance(arg, nodes.Tuple):  # written where it is used: it is nowhere itself
            for i, f in enumerate(arg.fields):
                self.wish(arg, i, f, want[i] if isinstance(want, tuple) else want)
        else:
            self.wishes.add((owner, index), self.of(arg), want)


def _planned(func: nodes.Function, domain: FunctionDomain) -> None:
    """Take over what planning has decided before."""
    for where, devices in zip(
        (*domain.args, domain.result),
        (*func.attrs.get(PARAM_DEVICES, ()), func.attrs.get(RESULT_DEVICES, ())),
        strict=False,
    ):
        for leaf, device in zip(leaves(where), devices, strict=False):
            fix(leaf, device, func)


@where_is.on(nodes.Var)
def _var(e: nodes.Var, c: DeviceConstraints) -> Any:
    return c.vars.setdefault(e, domain_of(e.ty))


@where_is.on(nodes.Constant)
def _constant(e: nodes.Constant, c: DeviceConstraints) -> Any:
    return Domain()


@where_is.on(nodes.GlobalVar)
def _global_var(e: nodes.GlobalVar, c: DeviceConstraints) -> Any:
    return c.functions.get(e.name_hint) or Domain()


@where_is.on(Constructor)
def _constructor(e: Constructor, c: DeviceConstraints) -> Any:
    one = Domain()
    return FunctionDomain((one,) * len(e.inputs), one)


@where_is.on(nodes.Function)
def _function(e: nodes.Function, c: DeviceConstraints) -> Any:
    domain = FunctionDomain(tuple(domain_of(p.ty) for p in e.params), domain_of(e.ret_type or e.body.ty))
    c.function(e, domain)
    return domain


@where_is.on(nodes.Tuple)
def _tuple(e: nodes.Tuple, c: DeviceConstraints) -> Any:
    made = tuple(domain_of(f.ty) for f in e.fields)
    for i, f in enumerate(e.fields):
        c.wish(e, i, f, made[i])
    return made


@where_is.on(nodes.TupleGetItem)
def _tuple_get_item(e: nodes.TupleGetItem, c: DeviceConstraints) -> Any:
    whole = c.of(e.tuple_value)
    if isinstance(whole, tuple):
        return whole[e.index]
    field = domain_of(e.ty)
    join(field, whole, e)
    return field


@where_is.on(nodes.If)
def _if(e: nodes.If, c: DeviceConstraints) -> Any:
    c.wish(e, 0, e.cond, Domain(c.host))
    made = c.of(e.true_branch)
    join(made, c.of(e.false_branch), e)
    return made


@where_is.on(Match)
def _match(e: Match, c: DeviceConstraints) -> Any:
    data, made = c.of(e.data), domain_of(e.ty)
    for clause in e.clauses:
        for var in pattern_vars(clause.lhs):
            c.vars[var] = domain_of(var.ty)
            join(c.vars[var], data, e)
        join(made, c.of(clause.rhs), e)
    return made


@where_is.on(nodes.RefCreate, nodes.RefRead)
def _reference(e: nodes.RefCreate | nodes.RefRead, c: DeviceConstraints) -> Any:
    made = domain_of(e.ty) if isinstance(e, nodes.RefRead) else Domain()
    join(made, c.of(e.ref if isinstance(e, nodes.RefRead) else e.value), e)
    return made


@where_is.on(nodes.RefWrite)
def _ref_write(e: nodes.RefWrite, c: DeviceConstraints) -> Any:
    join(c.of(e.ref), c.of(e.value), e)
    return ()


@where_is.on(nodes.Call)
def _call(e: nodes.Call, c: DeviceConstraints) -> Any:
    if isinstance(e.op, ir.Op):
        made = _operator(e, c)
        c.results[e] = made
        return made
    callee, made = c.of(e.op), domain_of(e.ty)
    if not isinstance(callee, FunctionDomain) or len(callee.args) != len(e.args):
        for a in e.args:
            join(c.of(a), callee, e)
        join(made, callee, e)
        return made
    for i, (a, want) in enumerate(zip(e.args, callee.args, strict=True)):
        c.wish(e, i, a, want)
    join(made, callee.result, e)
    return made


def _operator(e: nodes.Call, c: DeviceConstraints) -> Any:
    name = e.op.name  # type: ignore[union-attr]
    rule = _RULES.get(name)
    if rule is not None:
        return rule(e, c)
    made = domain_of(e.ty)
    if scalar_operation(e) is not None:
        fix(made, c.host, e)
        for i, a in enumerate(e.args):
            c.wish(e, i, a, Domain(c.host))
        return made
    here = next(leaves(made), Domain())
    join(made, here, e)
    inputs = get(name).inputs if has(name) else ()
    for i, a in enumerate(e.args):
        kind = inputs[min(i, len(inputs) - 1)].kind if inputs else "tensor"
        if kind != "function":
            c.wish(e, i, a, Domain(c.host) if kind == "values" else here)
    return made


def _on_device(e: nodes.Call, c: DeviceConstraints) -> Any:
    if isinstance(e.args[0], nodes.Constant):  # where it is needed
        return Domain()
    device, body, made = c.place(e.attrs["device"], e), c.of(e.args[0]), domain_of(e.ty)
    if e.attrs["constrain_body"]:  # equal expressions for two devices have become one: it is on one of them
        c.wishes.prefer(body, device)
    if e.attrs["constrain_result"]:
        fix(made, device, e)
    c.wishes.add((e, 0), body, made, weak=True)  # the copy stands here, not at each use
    return made


def _device_copy(e: nodes.Call, c: DeviceConstraints) -> Any:
    made = domain_of(e.ty)
    fix(c.of(e.args[0]), c.place(e.attrs["src_device"], e), e)
    fix(made, c.place(e.attrs["dst_device"], e), e)
    return made


def _invoke(e: nodes.Call, c: DeviceConstraints) -> Any:
    _, inputs, outputs = e.args
    here = c.kernels[e] = Domain()
    join(here, c.of(outputs), e)
    c.wish(e, 1, inputs, here)
    return ()


def _on_host(e: nodes.Call, c: DeviceConstraints) -> Any:
    for a in e.args:
        c.of(a)
    made = domain_of(e.ty)
    fix(made, c.host, e)
    return made


def _like_first(e: nodes.Call, c: DeviceConstraints) -> Any:
    first, made = c.of(e.args[0]), domain_of(e.ty)
    join(made, first, e)
    for i, a in enumerate(e.args[1:], 1):
        c.wish(e, i, a, Domain(c.host))
    return made


def _alloc_storage(e: nodes.Call, c: DeviceConstraints) -> Any:
    c.wish(e, 0, e.args[0], Domain(c.host))
    return Domain()


_RULES: dict[str, Any] = {
    "on_device": _on_device,
    "device_copy": _device_copy,
    "vm.invoke_tvm_op": _invoke,
    "vm.shape_of": _on_host,
    "vm.reshape_tensor": _like_first,
    "memory.alloc_storage": _alloc_storage,
    "memory.alloc_tensor": _like_first,
    "memory.kill": lambda e, c: (),
}
