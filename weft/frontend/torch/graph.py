"""The nodes of a graph of ``torch.fx``, one after another: calls, sizes, graphs inside of graphs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import weft
from weft import ir, relax
from weft.error import ModelImportError, UnsupportedOperator, require
from weft.frontend import complex_arithmetic
from weft.frontend.torch import complex_numbers, control, registry
from weft.frontend.torch.node import Node, dtype_name, number, stop_unless
from weft.frontend.torch.symbols import Symbols, as_expr

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

Converter = Callable[..., Any]
# Arguments whose effect the result's type has already, or that change no values.
_IN_THE_TYPE = frozenset(
    """dtype layout device pin_memory memory_format non_blocking implicit half_to_float sparse scale_grad_by_freq
    padding_idx sparse_grad size output_size scale_factors N C HxW momentum train sorted stable cudnn_enabled
    cudnn_enable sizes split_size split_sizes split_size_or_sections sections chunks end dim dims start_dim end_dim
    shape generator n m enabled requires_grad compute_log_sumexp return_debug_mask""".split()
)
_CHECK = "aten._linalg_check_errors"
"""Stops the program by the number that tells an operator's failure, which the operator itself does here."""
# Calls that say something to PyTorch's own tracer or allocator, and nothing about values.
_SILENT = ("aten.sym_constrain_range", "aten._assert_", _CHECK)


def find_custom(custom: Mapping[str, Converter], target: object) -> Converter | None:
    """The user's converter of an overload, by its name with or without the namespace, or by its operator's name."""
    name = str(target)
    inner = name.partition(".")[2]
    return custom.get(name) or custom.get(inner) or custom.get(inner.partition(".")[0])


def find_converter(node: torch.fx.Node) -> Converter | None:
    """Weft's own converter of a call, for real or for complex tensors."""
    known = [n.meta.get("val") for n in node.all_input_nodes]
    if complex_numbers.involved([node.meta.get("val"), known, list(node.args)]):
        return complex_numbers.find(node.target)
    return registry.find(_target_of(node), node.args)


def constant(tensor: torch.Tensor) -> ir.Constant:
    """A tensor of PyTorch as a constant, in the same memory where it lies there in order."""
    return ir.constant(weft.runtime.from_dlpack(as_real(tensor)))


def as_real(tensor: torch.Tensor) -> Any:
    """A tensor as Weft takes it, in the same memory where it lies there in order: real, and without a gradient."""
    tensor = tensor.detach().resolve_neg()
    if tensor.is_complex():
        import torch

        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.contiguous()


class Graph:
    """The state of one import."""

    def __init__(self, root: Any, custom: Mapping[str, Converter]) -> None:
        self.root, self.custom = root, custom
        self.bb, self.symbols = relax.BlockBuilder(), Symbols()
        self.values: dict[Any, Any] = {}
        self.at: Any = None
        """The call of the outermost graph that is under conversion: what a refusal is about."""

    def define_sizes(self, values: list[Any]) -> None:
        """Give the symbols that stand alone in some input's shape their variables."""
        for value in values:
            for d in getattr(value, "shape", ()):
                if not isinstance(d, int) and d.node.expr.is_Symbol and not self.symbols.knows(d):
                    self.symbols.define(d.node.expr)

    def define_passed(self, values: list[Any]) -> set[int]:
        """Give the sizes among some inputs that no shape shows their variables; which inputs they are."""
        alone = {i: v.node.expr for i, v in enumerate(values) if type(v).__name__ == "SymInt" and v.node.expr.is_Symbol}
        passed = {i for i in alone if not self.symbols.knows(values[i])}
        for i in passed:
            self.symbols.define(alone[i])
        return passed

    def type_of(self, value: Any) -> ir.TensorType:
        """The type of a tensor that PyTorch knows; a complex one has its parts in a last dimension."""
        shape = [*value.shape, 2] if value.dtype.is_complex else value.shape
        return ir.tensor_type([as_expr(self.symbols.dim(d)) for d in shape], dtype_name(value.dtype))

    def known(self, node: Any) -> Any:
        """What PyTorch knows of a value; a number out of data, which is no size, is a tensor of Python's type."""
        value = node.meta["val"]
        if type(value).__name__ != "SymFloat" or is_size(node):
            return value
        torch = require("torch", extra="torch")
        return torch.empty((), dtype=torch.float64, device="meta")

    def opened(self, x: Any, value: Any) -> Any:
        """A tensor from outside; a complex one in its parts."""
        return complex_arithmetic.split(self.bb, x) if complex_numbers.involved(value) else x

    def inlined(self, graph_module: Any, args: list[Any]) -> list[Any]:
        """Convert another graph where this one stands: its results for some arguments."""
        outer, self.root = self.root, graph_module
        given, results = iter(args), []
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "output":
                ends = node.args[0]
                results = [self.value(v) for v in (ends if isinstance(ends, (list, tuple)) else [ends])]
            else:
                self.convert(node)
        self.root = outer
        return results

    def as_tensor(self, found: Any, value: Any = None) -> Any:
        """A value as a tensor: numbers and sizes become one, parts of a complex one lie side by side."""
        if isinstance(found, complex_arithmetic.Complex):
            return complex_arithmetic.joined(self.bb, found)
        if isinstance(found, (bool, int, float)):
            return ir.constant(np.asarray(found))  # Python's digits
        if isinstance(found, ir.PrimExpr):
            return self.bb.emit(number(self.bb, found, found.dtype))
        return found

    def refuse_unsupported(self, nodes: Any) -> None:
        """Refuse a graph with operators that have no converter, naming all."""
        found = Counter(
            str(n.target)
            for n in calls(nodes)
            if not self.has_converter(n) and str(n.target) not in control.HIGHER_ORDER
        )
        if found:
            raise UnsupportedOperator(
                "operators of PyTorch have no converter: " + ", ".join(f"{n} ({k}x)" for n, k in sorted(found.items())),
                help="give one by custom_convert_map",
            )

    def has_converter(self, node: Any) -> bool:
        """Whether a call of a plain operator, one that takes no graphs, can be converted as it stands."""
        if node.target is operator.getitem or is_size(node) or _effect(node).startswith(_SILENT):
            return True
        return self._converter(node) is not None

    def _converter(self, node: Any) -> Converter | None:
        return self._custom(node) or find_converter(node)

    def _custom(self, node: Any) -> Converter | None:
        return find_custom(self.custom, node.target) or find_custom(self.custom, _target_of(node))

    # --- what converters of users know --------------------------------------------------------------------------------

    @property
    def env(self) -> dict[Any, Any]:
        """What each node became."""
        return self.values

    @property
    def block_builder(self) -> relax.BlockBuilder:
        """Where bindings go."""
        return self.bb

    def retrieve_args(self, node: Any) -> list[Any]:
        """A node's arguments as expressions, numbers, sequences of these."""
        return [self.value(v) for v in node.args]

    # --- calls --------------------------------------------------------------------------------------------------------

    def convert(self, node: Any) -> None:
        """Convert one node, where it says anything about values."""
        if node.op != "call_function":
            return
        if _effect(node).startswith(_SILENT):
            self._demand(node, _effect(node))
            self.values[node] = [None]  # the token, which calls with effects pass on
            return
        self.at = node if self.at is None or node.graph is self.at.graph else self.at
        if node.target is operator.getitem:
            self.values[node] = self._item(self.value(node.args[0]), node.args[1])
        elif is_size(node):
            found = self._size(node)
            self.values |= {} if found is None else {node: found}
        elif str(node.target) in control.HIGHER_ORDER:
            self.values[node] = control.HIGHER_ORDER[str(node.target)](self, node)
        else:
            self.values[node] = self._call(node)

    def _demand(self, node: Any, effect: str) -> None:
        """Let the program stop where a condition on sizes or on elements does not hold."""
        test, *rest = node.args[2 if str(node.target) == "with_effects" else 0 :]
        if not effect.startswith(("aten._assert_scalar", "aten._assert_async")) or test not in self.values:
            return  # what PyTorch's tracer alone reads
        stop_unless(self.bb, self.value(test), str(rest[0] if rest else "an assertion does not hold"), node.name)

    def _item(self, value: Any, i: int) -> Any:
        return value[i] if isinstance(value, (list, tuple)) else self.bb.emit(ir.TupleGetItem(value, i))

    def _size(self, node: Any) -> Any:
        """A size or a condition on sizes, from what PyTorch knows about it; one out of data gets a variable.

        Nothing, for what is computed from places in PyTorch's memory: often only its own checks read that.
        """
        value = node.meta["val"]
        if isinstance(value, (bool, int, float)):
            return value
        for symbol in self.symbols.unknown(value):
            if str(node.target) not in ("aten._local_scalar_dense.default", "aten.item.default"):
                return None
            x = relax.op.reshape(relax.op.astype(self.value(node.args[0]), "int64"), ir.shape_expr([1]))
            var = self.symbols.define(symbol, is_size=False)
            self.bb.match_cast(self.bb.emit(relax.core_ops.tensor_to_shape(self.bb.emit(x))), ir.ShapeType((var,), 1))
        return self.symbols.dim(value)

    def _call(self, node: Any) -> Any:
        converter = self._converter(node)
        assert converter is not None
        metas = _named(node, lambda n: n.meta.get("val"))
        readers = {user.args[1] for user in node.users if user.target is operator.getitem and user.users}
        args = _named(node, self.value, lambda v: v if isinstance(v, complex_arithmetic.Complex) else self.as_tensor(v))
        if "check_errors" in args and any(_effect(r).startswith(_CHECK) for user in node.users for r in user.users):
            args["check_errors"] = True
        name = registry.name_of(_target_of(node))
        context = Node(self.bb, self.symbols, name, args, metas, self.known(node), frozenset(readers))
        try:
            if self._custom(node) is not None:
                return self._checked(context, converter(node, self))
            found = converter(context)
            self._refuse_unread(node, context, converter)
            return self._checked(context, found)
        except weft.WeftError as error:
            if isinstance(error, ModelImportError) and node.name in str(error):
                raise
            raise ModelImportError(f"node '{node.name}' ({node.target}): {error}") from error
        except TypeError as error:  # Python's, of a number that has to be known
            if not any(isinstance(v, ir.PrimExpr) for v in args.values()):
                raise
            context.error("a number is known only when the program runs", help=f"pass a constant ({error})")

    def _refuse_unread(self, node: Any, context: Node, converter: Any) -> None:
        """An argument that a converter does not know must be its default: an overload may have one more."""
        known = _IN_THE_TYPE.union(context.read, converter.__code__.co_consts)  # some are read on one path only
        for arg in _target_of(node)._schema.arguments:
            given = context.args[arg.name]
            if arg.name in known or given is None:
                continue
            if isinstance(given, ir.Expr) or given != arg.default_value:
                context.error(f"argument '{arg.name}' is not supported", found=str(given)[:60])

    def _checked(self, node: Node, found: Any) -> Any:
        """The result with the element type and the shape that PyTorch says it has."""
        if isinstance(found, (list, tuple)):
            read = (x if i in node.used else None for i, x in enumerate(found))
            return [self.settled(x, v) for x, v in zip(read, node.value, strict=False)]
        return self.settled(found, node.value)

    def settled(self, x: Any, value: Any) -> Any:
        """A result with the element type and the shape that PyTorch says it has; new sizes get their variables."""
        if isinstance(x, complex_arithmetic.Complex):
            return complex_arithmetic.Complex(self.settled(x.re, value), self.settled(x.im, value))
        if x is None or not isinstance(x, ir.Expr) or not hasattr(value, "dtype"):
            return x
        if not isinstance(x, (ir.ExprVar, ir.Constant)):
            x = self.bb.emit(x)
        x = cast("Any", x)
        dtype = dtype_name(value.dtype)
        if x.ty.dtype != dtype:
            x = self.bb.emit(relax.op.astype(x, dtype))
        for d in value.shape:
            for symbol in self.symbols.unknown(d):
                self.symbols.define(symbol)
        dims = [self.symbols.dim(d) for d in value.shape]
        if x.ty.shape is not None and len(x.ty.shape) == len(dims):
            own = [d.value if isinstance(d, ir.IntImm) else d for d in x.ty.shape]
            if all(self.symbols.equal(a, b) for a, b in zip(own, dims, strict=True)):
                return x
        return self.bb.match_cast(x, ir.tensor_type([as_expr(d) for d in dims], dtype))

    def value(self, v: Any) -> Any:
        """An argument: what its node became, constants as they are, sequences of these."""
        if isinstance(v, (list, tuple)):
            return [self.value(x) for x in v]
        if type(v).__name__ == "Node":
            if v.op == "get_attr" and v not in self.values:
                self.values[v] = self._attribute(v)
            if v not in self.values:
                raise ModelImportError(f"{v.name}: size '{v.meta.get('val')}' is used before anything defines it")
            return self.values[v]
        return v

    def _attribute(self, node: Any) -> Any:
        found = self.root
        for part in node.target.split("."):
            found = getattr(found, part)
        return self.opened(constant(found), found) if hasattr(found, "detach") else found


def calls(nodes: Iterable[torch.fx.Node]) -> Iterator[Any]:
    """The calls of a graph and of the graphs inside of it."""
    for node in nodes:
        if node.op == "call_function":
            yield node
        elif node.op == "get_attr":
            inner: Any = getattr(node.graph.owning_module, str(node.target), None)
            yield from calls(inner.graph.nodes) if hasattr(inner, "graph") else ()


def _effect(node: Any) -> str:
    """The operator that a call is of, also where a token orders it among others."""
    return str(node.args[1] if str(node.target) == "with_effects" else node.target)


def mutates(node: torch.fx.Node) -> bool:
    """Whether a call writes to one of its arguments that anything else may read."""
    return getattr(getattr(_target_of(node), "_schema", None), "is_mutable", False)


def in_place(node: torch.fx.Node) -> bool:
    """Whether a call writes to its first argument, which is its result."""
    schema = getattr(node.target, "_schema", None)
    writes = schema is not None and schema.is_mutable and len(schema.returns) == 1
    return writes and str(node.target).split(".")[1].endswith("_")


_OF_NUMBERS = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "div"}
"""Python's arithmetic of numbers out of data, which are tensors here."""
_TO = "aten.to.dtype"
_COMPOSITE = "conv1d conv2d conv3d conv_transpose1d batch_norm instance_norm group_norm layer_norm linear matmul"
_NEW = (*(f"aten.{name}.default" for name in _COMPOSITE.split()), *(f"aten.conv_transpose{n}d.input" for n in (2, 3)))
"""Operators that PyTorch takes apart, whose results are in memory of their own all the same."""


def _target_of(node: Any) -> Any:
    """A call's operator; of one that writes to a new tensor that nothing reads later, the one that makes another."""
    target = node.target
    if target in _OF_NUMBERS and type(node.meta.get("val")).__name__ == "SymFloat":
        return getattr(require("torch", extra="torch").ops.aten, _OF_NUMBERS[target]).Tensor
    return pure(node) if in_place(node) and _writes_to_new(node) else target


def pure(node: torch.fx.Node) -> OpOverload:
    """The operator that makes a new tensor of what a call writes to its first argument; its own where there is none."""
    torch, target = require("torch", extra="torch"), cast("OpOverload", node.target)
    found = getattr(torch.ops.aten, str(target).split(".")[1].removesuffix("_"), None)
    found = getattr(found, target._overloadname, None)
    if found is None or [a.name for a in found._schema.arguments] != [a.name for a in target._schema.arguments]:
        return target
    values: list[Any] = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    types = [v.dtype for v in values if hasattr(v, "dtype")]
    return found if reduce(torch.promote_types, types) == types[0] else target


def _writes_to_new(node: Any) -> bool:
    """Whether a call writes to memory that an operator made for its result, and that nothing else reads later."""
    while in_place(node) or (str(node.target) == _TO and len({n.meta["val"].dtype for n in (node, node.args[0])}) == 1):
        writer, node = node, node.args[0]
        if any(not user < writer or _shares(user.target) for user in node.users if user is not writer):
            return False
    return is_new(node)


def is_new(node: torch.fx.Node) -> bool:
    """Whether a call's result is certainly in memory that its operator made for it."""
    first = next(iter(node.all_input_nodes), node)
    source: Any = first.target if node.target is operator.getitem else node.target
    if str(source) == _TO:
        return node.meta["val"].dtype != first.meta["val"].dtype
    return str(source) in _NEW or not (_shares(source) or source._can_decompose())


def _shares(target: Any) -> bool:
    """Whether a result of an operator may lie in an argument's memory."""
    schema = getattr(target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def is_size(node: torch.fx.Node) -> bool:
    """Whether a call's result is a number: a size, a condition on sizes."""
    value: Any = node.meta.get("val")
    if type(value).__name__ == "SymFloat":  # out of sizes, not out of data
        return all(s.is_integer for s in value.node.expr.free_symbols)
    return isinstance(value, (bool, int, float)) or type(value).__name__ in ("SymInt", "SymBool")


def _named(node: Any, read: Callable[[Any], Any], operand: Callable[[Any], Any] = lambda v: v) -> dict[str, Any]:
    """Arguments by the schema's names, with its defaults; `operand` maps tensors, which may be numbers."""

    def value(v: Any) -> Any:
        if isinstance(v, (list, tuple)):
            return [value(x) for x in v]
        return read(v) if type(v).__name__ == "Node" else v

    found = {}
    for i, arg in enumerate(_target_of(node)._schema.arguments):
        given = node.args[i] if i < len(node.args) else node.kwargs.get(arg.name, arg.default_value)
        found[arg.name] = operand(value(given)) if str(arg.type) == "Tensor" else value(given)
    return found
