"""The operator registry: each operator is declared once, for every dialect.

A declaration says what an operator's inputs and attributes are, how its type follows from theirs (``infer``), how it
is computed (``lower``, to tensor expressions), what it means (``reference``, in NumPy), how it may be fused, and what
happens to the order of dimensions. Constructors, printing, constant folding, legalization, layout passes, Relay's
macros of the same name, the documentation and the contract test are derived from it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from weft import error, ir
from weft.ir.int_range import exact_sizes
from weft.op.attributes import Attribute, checked_axes, normal_values


class Fusion(IntEnum):
    """How an operator takes part in fusion, in the order of how much it constrains its group."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    ANCHOR = 4
    OPAQUE = 8


class Layout(Enum):
    """What becomes of an operator where the dimensions of its first operand come in another order.

    OWN: it needs the order that it was written for. AXES: its result has the operand's dimensions, and attributes name
    the new places of those that it treats. NAMED: its attribute of kind :func:`~weft.op.attributes.data_layout` says
    which order it is.
    """

    OWN = 0
    AXES = 1
    NAMED = 2


@dataclass(frozen=True)
class Input:
    """An input: its name, its kind (``tensor``, ``tensors``, ``shape``, ``prim``, ``any``), whether it is needed."""

    name: str
    kind: str = "tensor"
    optional: bool = False

    @staticmethod
    def parse(text: str) -> Input:
        """Read ``"x"``, ``"bias?"``, ``"fields:tensors"``, ``"shape:shape"``."""
        name, _, kind = text.partition(":")
        return Input(name.rstrip("?"), kind or "tensor", name.endswith("?"))


@dataclass(frozen=True)
class OpDef:
    """One operator.

    ``infer(*args, **attrs)`` takes expressions with types and returns a type; ``lower`` takes te tensors (tuples of
    them, tuples of scalar expressions for shapes) and returns te tensors; ``reference`` takes and returns NumPy arrays;
    ``decompose`` takes expressions and returns one made of simpler operators, or None. All of them take any of the
    attributes, in any form that a constructor takes. ``rtol`` is the relative tolerance that the contract test allows.
    """

    name: str
    inputs: tuple[Input, ...]
    attrs: dict[str, Attribute]
    fusion: Fusion | Callable[[ir.Call], Fusion]
    infer: Callable[..., Any]
    lower: Callable[..., Any] | None
    reference: Callable[..., Any] | None
    decompose: Callable[..., Any] | None = None
    pure: bool = True
    rtol: float = 1e-5
    doc: str = ""
    tags: frozenset[str] = field(default_factory=frozenset)
    layout: Layout = Layout.OWN

    @property
    def op(self) -> ir.Op:
        """The operator's node."""
        return ir.Op.get("relax." + self.name)

    @property
    def defaults(self) -> dict[str, Any]:
        """The attributes' defaults."""
        return {name: kind.default for name, kind in self.attrs.items()}

    def names_axes(self, attrs: ir.Attrs) -> bool:
        """Whether the attributes of a call name dimensions of its first operand."""
        return any(kind.names_axes and attrs.get(name) is not None for name, kind in self.attrs.items())


class _WithAttributes:
    """A function of a declaration: it gets its inputs, and by name the attributes that it names, all in their forms."""

    def __init__(self, op: str, kinds: Mapping[str, Attribute], fn: Callable[..., Any], checks: bool = False) -> None:
        self.op, self.kinds, self.fn, self.checks = op, kinds, fn, checks

    @functools.cached_property
    def names(self) -> list[str]:
        """The attributes that the function names."""
        parameters = inspect.signature(self.fn).parameters
        takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        return [name for name in self.kinds if takes_all or name in parameters]

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        values = normal_values(self.op, self.kinds, attrs)
        if not self.checks:
            return self.fn(*args, **{name: values[name] for name in self.names})
        ndim = getattr(getattr(args[0], "ty", None), "ndim", -1) if args else -1
        if ndim >= 0:
            checked_axes(self.op, self.kinds, values, ndim)
        with exact_sizes():
            return self.fn(*args, **{name: values[name] for name in self.names})


_OPS: dict[str, OpDef] = {}


def declare(
    name: str,
    inputs: str,
    attrs: dict[str, Attribute] | None = None,
    *,
    infer: Callable[..., Any],
    lower: Callable[..., Any] | None,
    reference: Callable[..., Any] | None,
    fusion: Fusion | Callable[[ir.Call], Fusion] = Fusion.OPAQUE,
    decompose: Callable[..., Any] | None = None,
    pure: bool = True,
    rtol: float = 1e-5,
    tags: Sequence[str] = (),
    doc: str = "",
    layout: Layout | None = None,
) -> OpDef:
    """Declare an operator.

    Parameters
    ----------
    name : str
        Its Relax name without ``relax.``, such as ``"nn.softmax"``.
    inputs : str
        Names separated by spaces, each as :meth:`Input.parse` reads it.
    attrs : dict
        Attribute names and their kinds, in the order in which the constructor takes them after the inputs.
    infer, lower, reference, decompose : callable
        They name those attributes that they need.
    fusion : Fusion or callable
        Which neighbours it shares a kernel with; by default none.
    layout : Layout, optional
        By default AXES for element-wise operators, else OWN.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise error.InvalidArgument("an operator has a name", expected="a text", found=repr(name))
    if name in _OPS:
        raise error.InvalidArgument(f"operator '{name}' is declared twice")
    kinds = dict(attrs or {})

    def bound(fn: Callable[..., Any] | None) -> Any:
        return None if fn is None else _WithAttributes(name, kinds, fn)

    if layout is None:
        layout = Layout.AXES if fusion in (Fusion.ELEMENTWISE, Fusion.BROADCAST) else Layout.OWN
    made = _OPS[name] = OpDef(
        name,
        tuple(map(Input.parse, inputs.split())),
        kinds,
        fusion,
        _WithAttributes(name, kinds, infer, True),
        bound(lower),
        bound(reference),
        bound(decompose),
        pure,
        rtol,
        doc,
        frozenset(tags),
        layout,
    )
    return made


def get_op_def(op: ir.Op | str) -> OpDef:
    """Return the declaration of an operator.

    Raises
    ------
    UnsupportedOperator
        When there is none.
    """
    name = (op.name if isinstance(op, ir.Op) else op).removeprefix("relax.")
    definition = _OPS.get(name) or _registered(op.name if isinstance(op, ir.Op) else op)
    if definition is None:
        near = sorted(n for n in _OPS if n.rsplit(".", 1)[-1][:4] == name.rsplit(".", 1)[-1][:4])
        raise error.UnsupportedOperator(
            f"there is no operator '{name}'", help=f"near names: {', '.join(near)}" if near else None
        )
    return definition


def _registered(name: str) -> OpDef | None:
    """Declare an operator by the attributes that a program registered: ``FInferType`` gets the call, and no context."""
    rule = ir.op_attr(name, "FInferType") or ir.op_attr(name, "FInferStructInfo")
    if rule is None:
        return None

    def infer(*args: ir.Expr, **attrs: object) -> ir.Type:
        return rule(ir.Call(ir.Op.get(name), args, ir.Attrs.of(attrs)), None)

    return OpDef(name, (), {}, Fusion.OPAQUE, infer, None, None, pure=bool(ir.op_attr(name, "FPurity")))


def list_ops() -> list[str]:
    """List the names of all operators, sorted."""
    return sorted(_OPS)


@functools.cache
def make_call(name: str) -> Callable[..., ir.Call]:
    """Return the constructor of an operator: ``make_call("nn.softmax")(x, axis=-1)``.

    Positional arguments are the inputs, then attributes in order. Python numbers become constants of the other
    operands' type, lists become shapes or tuples as the input asks.
    """
    definition = get_op_def(name)

    def construct(*args: Any, **kwargs: Any) -> ir.Call:
        inputs, attrs = _bind(definition, args, kwargs)
        return ir.Call(definition.op, inputs, ir.Attrs.of(attrs))

    construct.__name__ = name.rsplit(".", 1)[-1]
    construct.__doc__ = definition.doc
    construct.__signature__ = _signature(definition)  # pyright: ignore[reportFunctionMemberAccess]
    return construct


def _signature(definition: OpDef) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    empty = inspect.Parameter.empty
    inputs = [inspect.Parameter(i.name, kind, default=None if i.optional else empty) for i in definition.inputs]
    attrs = [inspect.Parameter(name, kind, default=attr.default) for name, attr in definition.attrs.items()]
    return inspect.Signature(inputs + attrs)


OTHER_NAMES = dict(x1="lhs", x2="rhs", data="x", x="data", expr="x", input="x", collapse_target="target")
"""TVM's names of inputs that have another one here."""


def _bind(
    definition: OpDef, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[ir.Expr, ...], dict[str, Any]]:
    """Distribute arguments over inputs and attributes."""
    names = [i.name for i in definition.inputs] + list(definition.attrs)
    if len(args) > len(names):
        raise error.InvalidArgument(
            f"{definition.name}: too many arguments", expected=f"at most {len(names)}", found=str(len(args))
        )
    values = dict(zip(names, args, strict=False))
    for given, value in kwargs.items():
        key = given if given in names else OTHER_NAMES.get(given, given)
        if key not in names:
            raise error.InvalidArgument(f"{definition.name}: unknown argument '{given}'", expected=", ".join(names))
        if key in values:
            raise error.InvalidArgument(f"{definition.name}: argument '{key}' is given twice")
        values[key] = value
    like = next((_dtype(v) for v in values.values() if _dtype(v)), None)
    inputs: list[ir.Expr] = []
    for spec in definition.inputs:
        value = values.get(spec.name)
        if value is None:
            if not spec.optional:
                raise error.InvalidArgument(f"{definition.name}: missing input '{spec.name}'")
            break
        inputs.append(_convert(spec, value, like))
    attrs = {k: v for k, v in values.items() if k in definition.attrs}
    normal = normal_values(definition.name, definition.attrs, attrs)
    if normal.get("out_layout") is not None and normal["out_layout"] == normal.get("data_layout", normal.get("layout")):
        normal["out_layout"] = None  # what the layout of the result is anyway
    return tuple(inputs), normal


def _dtype(value: Any) -> str | None:
    ty = getattr(value, "ty", None)
    return ty.dtype if isinstance(value, ir.Expr) and isinstance(ty, ir.TensorType) and ty.dtype else None


def _convert(spec: Input, value: Any, like: str | None) -> ir.Expr:
    if isinstance(value, ir.Expr):
        return value
    if spec.kind == "shape":
        return ir.shape_expr(value if isinstance(value, (list, tuple)) else (value,))
    if spec.kind == "prim":
        return ir.prim_value(value)
    if spec.kind == "tensors":
        if not isinstance(value, (list, tuple)):
            raise error.InvalidArgument(f"'{spec.name}' is no list of tensors", found=f"{value!r:.60}")
        return ir.Tuple(tuple(_convert(Input(spec.name), v, like) for v in value))
    if isinstance(value, ir.PrimExpr):
        return ir.PrimValue(value)
    if isinstance(value, (bool, int, float)) and like is not None:
        return ir.constant(value, like)
    return ir.constant(value)
