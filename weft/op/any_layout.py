"""Operators in any layout: dimensions in any order, and blocks of them, computed in the order that kernels know.

``NCHW4c`` data are brought into NCHW before the operator, and its result back. Type rule, computation, meaning and
decomposition of an operator come from those for the layouts that it knows.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from weft.ir import Expr, ExprVar, TensorType
from weft.op.attributes import Attribute, text
from weft.op.infer import tensor_arg
from weft.op.layout import demand_blocks, layout_reference
from weft.op.registry import make_call
from weft.topi.manipulate import layout_shape, layout_transform


def letters(layout: str) -> int:
    """Count the dimensions of a tensor in a layout."""
    return sum(map(str.isalpha, layout))


def in_any_order(kind: Attribute, plain: str) -> Attribute:
    """Widen a layout's attribute: the letters of `plain` in any order, and blocks of them, such as ``4c``."""

    def normal(value: Any) -> Any:
        try:
            return kind.normal(value)
        except ValueError:
            parts = re.findall(r"[A-Z]|[1-9]\d*[a-z]", value)
            names = [p[-1] for p in parts]
            fits = "".join(parts) == value and len(set(names)) == len(names)
            if (
                not fits
                or sorted(c for c in names if c.isupper()) != sorted(plain)
                or not ({c.upper() for c in names} <= set(plain))
            ):
                raise
            return text("").normal(value)

    return replace(kind, says=f"{kind.says}, or another order of '{plain}' with or without blocks", normal=normal)


@dataclass(frozen=True)
class Layouts:
    """The layouts of an operator: of each operand its attribute and the plain order, and those that kernels know.

    ``out`` is the plain order of the result, whose layout is ``out_layout``, or else that of the first operand.
    """

    name: str
    operands: tuple[tuple[str, str], ...]
    known: Callable[[dict[str, Any]], bool]

    def plain(self, attrs: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the attributes in the plain layouts, and the layout that the result is to have."""
        out = attrs.get("out_layout") or attrs[self.operands[0][0]]
        return {**attrs, **dict(self.operands), "out_layout": None}, out

    def infer(self, base: Callable[..., Any]) -> Callable[..., Any]:
        """Make the type rule."""

        def infer(*args: Expr, **attrs: Any) -> Any:
            if self.known(attrs):
                return base(*args, **attrs)
            operands: list[Expr] = list(args)
            for n, (attr, plain) in enumerate(self.operands):
                layout = attrs[attr]
                ty = tensor_arg(self.name, ("data", "weight")[n], args[n], ndim=letters(layout))
                dims = None
                if ty.shape is not None:
                    demand_blocks(self.name, ty.shape, layout, args[n])
                    dims = layout_shape(ty.shape, layout, plain)
                operands[n] = ExprVar("x", TensorType(dims, ty.dtype, len(plain), ty.vdevice))
            new, out = self.plain(attrs)
            ty = base(*operands, **new)
            dims = None if ty.shape is None else layout_shape(ty.shape, self.operands[0][1], out)
            return TensorType(dims, ty.dtype, letters(out), ty.vdevice)

        return infer

    def wrap(self, base: Callable[..., Any], move: Callable[..., Any]) -> Callable[..., Any]:
        """Make what computes, of what does so in known layouts and of what moves values between layouts."""

        def compute(*args: Any, **attrs: Any) -> Any:
            if self.known(attrs):
                return base(*args, **attrs)
            new, out = self.plain(attrs)
            operands = list(args)
            for n, (attr, plain) in enumerate(self.operands):
                operands[n] = args[n] if attrs[attr] == plain else move(args[n], attrs[attr], plain)
            made, plain = base(*operands, **new), self.operands[0][1]
            return made if out == plain else move(made, plain, out)

        return compute

    def declared(self, infer: Any, lower: Any, reference: Any, decompose: Any = None) -> dict[str, Any]:
        """Return the functions of a declaration."""
        infer, lower, reference = map(_taking, (infer, lower, reference))

        def simpler(*args: Expr, **attrs: Any) -> Expr | None:
            if not self.known(attrs):
                return self.wrap(make_call(self.name), make_call("layout_transform"))(*args, **attrs)
            return None if decompose is None else decompose(*args, **attrs)

        return {
            "infer": self.infer(infer),
            "lower": self.wrap(lower, layout_transform),
            "reference": self.wrap(reference, layout_reference),
            "decompose": simpler,
        }


def _taking(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function be called with attributes that it does not name."""
    names = inspect.signature(fn).parameters
    if any(p.kind is p.VAR_KEYWORD for p in names.values()):
        return fn
    return lambda *args, **attrs: fn(*args, **{n: v for n, v in attrs.items() if n in names})
