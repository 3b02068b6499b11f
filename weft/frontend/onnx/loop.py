"""Loop and Scan: short ones are written out, others become a recursive function over their state.

The function takes the number of the iteration, whether to go on, what the loop carries and the outputs so far; what it
uses from around it, it captures. A dimension that an iteration changes is symbolic inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import ir, relax
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.graph import Scope
from weft.frontend.onnx.importer import convert_subgraph
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.sequence import NO_RANK, merged
from weft.frontend.onnx.value import Dim, Value
from weft.relax import Var as RelaxVar
from weft.runtime.host import Kind

_MAX_WRITTEN_OUT = 200
"""So many nodes, over the iterations of all loops around, are written out where the number of iterations is known."""
_FOREVER = (1 << 63) - 1

Step = Callable[[Value, Value, list[Value]], tuple[Value, list[Value], list[Value]]]
"""One iteration: from its number, whether to go on and the state, to whether to go on, the state and new outputs."""


@converter("Loop")
def _loop(node: Node) -> Any:
    body, carried = node.attr("body"), [node.value(i) for i in range(2, len(node.inputs))]
    if len(body.input) != len(carried) + 2 or len(body.output) != len(node.proto.output) + 1:
        node.error(
            "its body has a wrong number of inputs or outputs",
            expected=f"{len(carried) + 2} and {len(node.proto.output) + 1}",
            found=f"{len(body.input)} and {len(body.output)}",
        )

    def step(number: Value, go_on: Value, state: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        ranks = [len(given.type.tensor_type.shape.dim) for given in body.input]
        number, go_on = (_as_declared(node, v, r) for v, r in zip((number, go_on), ranks, strict=False))
        found = _converted(node, body, [number, go_on, *state])
        for i, before in enumerate(state, 1):  # an optional may go on as the value that it has
            if before.full_kind.form == "optional" and found[i].full_kind.form != "optional":
                kind = Kind("optional", of=found[i].full_kind)
                (found[i],) = node.host("SequenceConstruct", [found[i]], [kind])
        return found[0], found[1 : 1 + len(state)], found[1 + len(state) :]

    _check_one_value(node, 0)
    _check_one_value(node, 1)
    go_on = node.value(1) if node.has(1) else Value.of_array(np.array(True))
    trips: Dim = _FOREVER if not node.has(0) else node.ints(0)[0]
    state, outputs = _iterate(node, step, trips, go_on, carried, [False] * (len(body.output) - 1 - len(carried)))
    return [*state, *outputs]


def _as_declared(node: Node, value: Value, rank: int) -> Value:
    """Return one value as a vector, where a body says that it takes it so."""
    return Value.of_expr(node.reshape(node.graph.expr(value), [1])) if rank == 1 and not value.shape else value


def _check_one_value(node: Node, i: int) -> None:
    """Refuse a trip count or condition that is known not to be one value."""
    if not node.has(i):
        return
    value = node.value(i)
    if any(s.is_known(d) and d != 1 for d in value.shape):
        node.error(
            f"its {('trip count', 'condition')[i]} is not one value",
            expected="one element",
            found=f"shape ({', '.join(map(str, value.shape))})",
        )


@converter("Scan")
def _scan(node: Node) -> Any:
    if node.opset < 9:
        return _batched_scan(node)
    return _scanned(node)


def _batched_scan(node: Node) -> Any:
    """The form of opset 8: every input has an axis for a batch, whose elements are scanned one by one."""
    if node.has(0):
        node.unsupported("sequences of different lengths are not supported", expected="no first input")
    batch = node.shape(1)[0]
    if not isinstance(batch, int) or batch < 1:
        node.unsupported("the batch of opset 8 must be known before the model runs", found=str(batch))
    rows = []
    for b in range(batch):
        parts = [
            node.reshape(node.slice(node.x(i), [0], [b], [b + 1]), node.shape(i)[1:])
            for i in range(1, len(node.inputs))
        ]
        one = Node(node.graph, node.proto, [Value.of_expr(x) for x in parts], 9, node.where)
        if "directions" in one.attrs:
            one.attrs["scan_input_directions"] = one.attrs["directions"]
        rows.append([_as_row(node, v) for v in _scanned(one)])
    return [node.concat(list(column), 0) for column in zip(*rows, strict=True)]


def _scanned(node: Node) -> list[Value]:
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    first = len(node.inputs) - count
    carried, sources = [node.value(i) for i in range(first)], [node.x(first + k) for k in range(count)]
    axes = [node.axis(a, node.ndim(first + k)) for k, a in enumerate(node.attr("scan_input_axes", [0] * count))]
    n_outputs = len(body.output) - first
    trips = node.shape(first)[axes[0]]
    sources = [  # of one length, which is checked at run time where it is not known
        node.with_dims(x, [trips if k == axis else d for k, d in enumerate(node.dims(x))])
        for x, axis in zip(sources, axes, strict=True)
    ]
    reads_back = node.attr("scan_input_directions", [0] * count)

    def step(number: Value, go_on: Value, state: list[Value]) -> tuple[Value, list[Value], list[Value]]:
        x = node.graph.expr(number)
        parts = []
        for source, axis, back in zip(sources, axes, reads_back, strict=True):
            last = node.graph.expr(Value.of_elements(s.subtract(trips, 1), "int64"))
            place = node.op("subtract", last, x) if back else x
            parts.append(Value.of_expr(node.op("take", source, place, axis=axis, mode="clip")))
        found = _converted(node, body, [*state, *parts])
        return go_on, found[:first], found[first:]

    turned = [bool(d) for d in node.attr("scan_output_directions", [0] * n_outputs)]
    state, outputs = _iterate(node, step, trips, Value.of_array(np.array(True)), carried, turned)
    for i, axis in enumerate(node.attr("scan_output_axes", [0] * n_outputs)):
        value, rank = node.graph.expr(outputs[i]), len(outputs[i].shape)
        order = list(range(1, rank))
        order.insert(node.axis(axis, rank), 0)
        outputs[i] = Value.of_expr(node.permute(value, order))
    return [*state, *outputs]


def _converted(node: Node, body: Any, inputs: Sequence[Value]) -> list[Value]:
    graph = node.graph
    with graph.inside(Scope(graph.scope, graph.scope.opsets)):
        return convert_subgraph(graph, body, node.where, inputs)


def _iterate(
    node: Node, step: Step, trips: Dim, go_on: Value, carried: list[Value], turned: list[bool]
) -> tuple[list[Value], list[Value]]:
    """Run `step` while it says so, `trips` times at most; return the last state and the outputs of all iterations."""
    size = len(node.attr("body").node)
    known = go_on.constant
    times = trips * node.graph.written if isinstance(trips, int) else 0
    if 0 < times * max(size, 1) <= _MAX_WRITTEN_OUT and known is not None and known.all():
        before, node.graph.written = node.graph.written, times
        try:
            written = _written_out(node, step, times // before, go_on, carried, turned)
        finally:
            node.graph.written = before
        if written is not None:
            return written
    return _Recursion(node, step, trips, turned).run(go_on, carried)


def _written_out(
    node: Node, step: Step, trips: int, go_on: Value, carried: list[Value], turned: list[bool]
) -> tuple[list[Value], list[Value]] | None:
    """Convert one iteration after another; None where whether to go on is not known."""
    state, rows = list(carried), []
    for i in range(trips):
        go_on, state, found = step(Value.of_array(np.array(i, np.int64)), go_on, state)
        if go_on.constant is None:
            return None
        rows.append(found)
        if not go_on.constant.all():
            break
    outputs = []
    for back, column in zip(turned, zip(*rows, strict=True), strict=True):
        parts = [_as_row(node, v) for v in (column[::-1] if back else column)]
        outputs.append(Value.of_expr(node.concat(parts, 0), column[0].kind))
    return state, outputs


def _as_row(node: Node, value: Value) -> Any:
    return node.reshape(node.graph.expr(value), [1, *value.shape])


class _Recursion:
    """A loop as a function that calls itself."""

    def __init__(self, node: Node, step: Step, trips: Dim, turned: list[bool]) -> None:
        self.node, self.graph, self.step, self.trips, self.turned = node, node.graph, step, trips, turned
        self.limit = self.graph.expr(Value.of_elements(trips, "int64"))
        self.older = self.graph.names_in_use()
        self.changing: set[Any] = set()
        self.endless = True

    def run(self, go_on: Value, carried: list[Value]) -> tuple[list[Value], list[Value]]:
        """Define the function and call it with the first state."""
        node, graph = self.node, self.graph
        dims, rows, carried = self._settled(carried)
        start = [graph.expr(v) for v in carried]
        types = [ir.tensor_type((), "int64"), ir.tensor_type((), "bool")]
        self.kinds = [v.kind for v in carried]
        types += [_type(d, v) for d, v in zip(dims, carried, strict=True)]
        types += [ir.TensorType(None, dtype, len(shape) + 1) for shape, dtype in rows]
        loop = self._recursive(types, len(dims))
        first = {a: b for new, v in zip(dims, carried, strict=True) for a, b in zip(new, v.shape, strict=True)}
        inner = [[first.get(d, d) for d in shape] for shape, _ in rows]
        known = [[d if self._is_outside(d) else None for d in shape] for shape in inner]
        dtypes = [dtype for _, dtype in rows]
        declared = node.attr("body").output[len(node.attr("body").output) - len(rows) :]
        empty = [
            node.full([0, *_known_or_declared(ds, o)], 0, t) for ds, t, o in zip(known, dtypes, declared, strict=True)
        ]
        test = node.astype(node.reshape(graph.expr(go_on), []), "bool")
        found = graph.fields(graph.emit(ir.Call(loop, (node.scalar(0, "int64"), test, *start, *empty))))[2:]
        for i, new in enumerate(dims):
            if not carried[i].is_tensor:
                continue
            own = node.dims(found[i])
            found[i] = node.with_dims(found[i], [b if a in self.changing else a for a, b in zip(new, own, strict=True)])
        runs_out = self.endless and go_on.constant is not None and go_on.constant.all()
        count = s.maximum(self.trips, 0) if runs_out else None
        for i, (shape, back) in enumerate(zip(known, self.turned, strict=True), len(dims)):
            own = zip([count, *shape], node.dims(found[i]), strict=True)
            found[i] = node.with_dims(found[i], [b if a is None else a for a, b in own])
            found[i] = node.op("flip", found[i], axis=0) if back else found[i]
        kinds = [*self.kinds, *self.row_kinds]
        values = [Value.of_expr(f, k) for f, k in zip(found, kinds, strict=True)]
        return values[: len(dims)], values[len(dims) :]

    def _recursive(self, types: list[Any], states: int) -> Any:
        """Bind a function of a number, whether to go on, and a state: it calls itself or returns what it was given."""
        node, graph = self.node, self.graph
        outside = [self._open(t) for t in types]  # variables of the function are its own
        result = ir.TupleType(tuple(outside))
        itself = RelaxVar(graph.bb.fresh_name("loop"), ir.FuncType(tuple(outside), result, True), span=graph.bb.span)
        params = [RelaxVar(graph.bb.fresh_name("state"), t) for t in types]
        with graph.branch(Scope(graph.scope, graph.scope.opsets)) as body:
            test = node.op("logical_and", params[1], node.op("less", params[0], self.limit))
            with graph.branch(Scope(graph.scope, graph.scope.opsets)) as inner:
                taken = graph.bb.finish(inner, graph.emit(self._step(itself, params, states)))
            with graph.branch(Scope(graph.scope, graph.scope.opsets)) as inner:
                left = graph.bb.finish(inner, graph.bb.atom(ir.Tuple(tuple(params))))
            sequence = graph.bb.finish(body, graph.bb.emit(ir.If(test, taken, left)))
        func = ir.Function(tuple(params), sequence, result, ty=itself.ty)
        graph.bb.emit_normalized(relax.VarBinding(itself, func, span=graph.bb.span))
        return itself

    def _step(self, itself: Any, params: list[Any], states: int) -> ir.Call:
        """Run an iteration, then the others: a tail call."""
        node, graph = self.node, self.graph
        number, state, rows = params[0], params[2 : 2 + states], params[2 + states :]
        go_on, after, found = self.step(
            Value.of_expr(number), _TRUE, [Value.of_expr(p, k) for p, k in zip(state, self.kinds, strict=True)]
        )
        announced = self.limit if self.endless else ir.prim_value(0)
        joined = [
            graph.bb.emit(relax.call_pure_packed("vm.builtin.append", r, graph.expr(v), announced, ty_args=r.ty))
            for r, v in zip(rows, found, strict=True)
        ]
        test = node.astype(node.reshape(graph.expr(go_on), []), "bool")
        following = node.op("add", number, node.scalar(1, "int64"))
        return ir.Call(itself, (following, test, *map(graph.expr, after), *joined))

    def _settled(self, carried: list[Value]) -> tuple[list[list[Dim]], list[tuple[list[Dim], str]], list[Value]]:
        """Return dimensions, symbolic where an iteration changes them, of the state and what is put out; and the state.

        What is no tensor has the kind there that it has in every iteration.
        """
        graph = self.graph
        dims = [self._inside(v.shape) for v in carried]
        while True:
            with graph.branch(Scope(graph.scope, graph.scope.opsets)):
                types = [_type(d, v) for d, v in zip(dims, carried, strict=True)]
                state = [
                    Value.of_expr(RelaxVar(graph.bb.fresh_name("state"), t), v.kind)
                    for t, v in zip(types, carried, strict=True)
                ]
                number = RelaxVar(graph.bb.fresh_name("number"), ir.tensor_type((), "int64"))
                go_on, after, outputs = self.step(Value.of_expr(number), _TRUE, state)
                self.endless = go_on.constant is not None and bool(go_on.constant.all())
                rows = [(self._inside(v.shape), v.dtype) for v in outputs]
            self.row_kinds = [v.kind for v in outputs]
            before = len(self.changing)
            carried, changed = self._with_kinds(carried, after)
            for k, (new, old, v) in enumerate(zip(dims, carried, after, strict=True)):
                if v.dtype == old.dtype and (list(old.shape), list(v.shape)) == ([], [1]):
                    carried[k], dims[k], changed = Value.of_expr(_as_row(self.node, old)), [1], True
                    continue
                if v.dtype != old.dtype or len(v.shape) != len(old.shape):
                    self.node.unsupported(
                        f"{self.node.op_type}: an iteration changes the type or rank of what it carries",
                        expected=f"{old.dtype} of {len(old.shape)} dimensions",
                        found=f"{v.dtype} of {len(v.shape)}",
                    )
                for k, (a, b) in enumerate(zip(new, v.shape, strict=True)):
                    if a not in self.changing and not s.provably_equal(a, b):
                        new[k] = self._changing()
            if len(self.changing) == before and not changed:
                return dims, rows, carried

    def _with_kinds(self, carried: list[Value], after: list[Value]) -> tuple[list[Value], bool]:
        """Give what is no tensor the kind that it has after an iteration too."""
        found = [
            v if v.is_tensor else Value.of_expr(v.expr, _grown(self.node, v.full_kind, a.full_kind))
            for v, a in zip(carried, after, strict=True)
        ]
        return found, any(a.kind != b.kind for a, b in zip(carried, found, strict=True))

    def _changing(self) -> Dim:
        var = self.graph.size_var("d")
        self.changing.add(var)
        return var

    def _inside(self, shape: Sequence[Dim]) -> list[Dim]:
        """Return dimensions that a parameter may have: numbers, variables from around, or new ones."""
        return [d if d in self.changing or self._is_outside(d) else self._changing() for d in shape]

    def _is_outside(self, d: Any) -> bool:
        """Whether a dimension means the same outside of the loop."""
        return ir.as_int(d) is not None or (isinstance(d, ir.SizeVar) and d.name in self.older)

    def _open(self, ty: Any) -> Any:
        """Return the type of a result, without dimensions that are known only inside."""
        return (
            ty
            if not isinstance(ty, ir.TensorType) or ty.shape is None or all(map(self._is_outside, ty.shape))
            else ir.TensorType(None, ty.dtype, ty.ndim)
        )


def _type(dims: Sequence[Dim], value: Value) -> Any:
    return ir.tensor_type(dims, value.dtype) if value.is_tensor else ir.AnyType()


def _grown(node: Node, before: Kind, after: Kind) -> Kind:
    """Return the kind that a value has before and after an iteration; a sequence may begin without elements."""
    if before.of is not None and before.of.rank == NO_RANK:
        return after
    return before if after.of is not None and after.of.rank == NO_RANK else merged(node, [before, after])


def _known_or_declared(dims: Sequence[Dim | None], info: Any) -> list[Dim]:
    """Return the dimensions of what an iteration puts out, should there be none: those that the body declares, or 0."""
    given = info.type.tensor_type.shape.dim
    numbers = [d.dim_value for d in given] if len(given) == len(dims) else [0] * len(dims)
    return [n if d is None else d for d, n in zip(dims, numbers, strict=True)]


_TRUE = Value.of_array(np.array(True))
