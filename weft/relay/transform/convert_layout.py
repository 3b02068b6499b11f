"""ConvertLayout and AlterOpLayout: operators in other layouts, and as few transformations between as there can be.

Each value that changed keeps both layouts: the one it had, which users that know nothing of layouts get back, and the
one it has. An operator whose attributes name no layout takes the one that its arguments have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from weft import ir, te
from weft.error import InvalidArgument
from weft.ir import Attrs, Pass, Sequential
from weft.relay.expr import Call, Function, Tuple, TupleGetItem, TupleWrapper
from weft.relay.op.layouts import blocks
from weft.relay.op.registry import get, op_call
from weft.relay.transform.canonicalize import canonicalize_ops
from weft.relay.transform.infer_layout import infer_layouts, primal
from weft.relay.transform.typed_pass import over_typed_functions, with_types
from weft.relay.walk import map_parts

Alter = Callable[[Any, Attrs, list[Any]], Any]


class _Laid(NamedTuple):
    """A value with the layout that it had and the one that it has."""

    value: Any
    old: str | None = None
    new: str | None = None


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass:
    """Make the pass that brings operators into layouts that a program wants.

    Parameters
    ----------
    desired_layouts : mapping of str to list of str
        For each operator the layouts of its data and of its kernel, which may be ``"default"``:
        ``{"nn.conv2d": ["NHWC", "default"]}``. A function ``fn(attrs, args, tinfos, layouts)`` that is registered with
        an operator as ``FTVMConvertOpLayout`` is asked instead.

    Source: TVM's ``ConvertLayout``.
    """
    wanted = {str(k): [str(v) for v in layouts] for k, layouts in desired_layouts.items()}

    def alter(call: Any, attrs: Attrs, args: list[Any]) -> Any:
        layouts = wanted.get(call.op.name)
        if layouts is None:
            return None
        convert = call.op.get_attr("FTVMConvertOpLayout")
        if convert is None:
            return _converted(_Attributes(call, attrs), args, layouts)
        return convert(attrs, args, _tensors(call), layouts)

    bare = Pass("ConvertLayout", over_typed_functions(lambda f: _Rewriter(alter).function(f)), 3, ConvertLayout.__doc__)
    return _Laying([canonicalize_ops(), bare], 3, "ConvertLayout")


@with_types
def AlterOpLayout() -> Pass:
    """Make the pass that asks functions registered with operators for the layouts that suit the target.

    A function ``fn(attrs, args, tinfos, out_type)`` that is registered as ``FTVMAlterOpLayout`` returns a call in
    another layout, or None to keep the one there is.

    Source: TVM's ``AlterOpLayout``.
    """

    def alter(call: Any, attrs: Attrs, args: list[Any]) -> Any:
        make = call.op.get_attr("FTVMAlterOpLayout")
        return None if make is None else make(attrs, args, _tensors(call), call.ty)

    return Pass("AlterOpLayout", over_typed_functions(lambda f: _Rewriter(alter).function(f)), 3, AlterOpLayout.__doc__)


class LayoutConfig:
    """Leaves some convolutions of a function as they are, within a ``with`` block.

    Parameters
    ----------
    skip_layers : list of int, optional
        Which, by their order.
    """

    current: ClassVar[LayoutConfig | None] = None

    def __init__(self, skip_layers: Sequence[int] | None = None) -> None:
        self.skip_layers, self.skip_counter = list(skip_layers or ()), 0

    def check_skip(self) -> bool:
        """Whether the next convolution is left as it is."""
        self.skip_counter += 1
        return self.skip_counter - 1 in self.skip_layers

    def reset(self) -> None:
        """Begin to count again."""
        self.skip_counter, self.skip_layers = 0, []

    def __enter__(self) -> LayoutConfig:
        self._outer, LayoutConfig.current = LayoutConfig.current, self
        return self

    def __exit__(self, *_: object) -> None:
        LayoutConfig.current = self._outer


class _Laying(Sequential):
    """Passes that belong together, one after another, and the types of what they make."""

    def _run_all(self, mod: ir.IRModule) -> ir.IRModule:
        for p in self.passes:
            mod = with_types(lambda p=p: p)()(mod)
        return mod


class _Attributes(NamedTuple):
    call: Any
    attrs: Attrs


def _tensors(call: Call) -> list[Any]:
    """Return placeholders of the types of the arguments."""
    types: list[Any] = [t for a in call.args for t in (a.ty.fields if isinstance(a.ty, ir.TupleType) else (a.ty,))]
    return [te.placeholder(t.shape, t.dtype) for t in types]


_KERNELS = {
    "NCW": "OIW",
    "NWC": "WIO",
    "NCHW": "OIHW",
    "NHWC": "HWIO",
    "HWNC": "HWOI",
    "NCDHW": "OIDHW",
    "NDHWC": "DHWIO",
}


def _converted(given: _Attributes, args: list[Any], layouts: Sequence[str]) -> Any:
    """Call an operator whose attributes name layouts with others."""
    call, attrs = given
    name, known = call.op.name, dict(attrs.items)
    if "kernel_layout" in known:
        if LayoutConfig.current is not None and LayoutConfig.current.check_skip():
            return None
        if len(layouts) != 2 or layouts[0] == "default":
            raise InvalidArgument(
                f"ConvertLayout: {name} wants a layout of its data and one of its kernel",
                expected='["NHWC", "default"]',
                found=str(list(layouts)),
            )
        known |= {"data_layout": layouts[0], "kernel_layout": _kernel_layout(call, *layouts)}
    elif "layout" in known:
        known["layout"] = layouts[0]
        if "out_layout" in known:
            known["out_layout"] = layouts[0]
    else:
        return None
    return Call(call.op, tuple(args), Attrs.of(known))


def _kernel_layout(call: Any, data: str, kernel: str) -> str:
    if kernel != "default":
        return kernel
    made = _KERNELS.get(data)
    if made is None:
        raise InvalidArgument(
            f"ConvertLayout: there is no default layout of kernels for '{data}'",
            expected=", ".join(_KERNELS),
            help="say the kernel's layout",
        )
    if call.op.name.endswith("transpose"):
        return made.replace("OI", "IO") if made.startswith("OI") else made
    groups, layout = int(call.attrs["groups"]), call.attrs["kernel_layout"]
    extents = dict(zip(layout, map(ir.as_int, call.args[1].ty.shape), strict=False))
    depthwise = groups > 1 and groups == extents.get("O") and extents.get("I") == 1
    return "HWOI" if depthwise and made == "HWIO" else made


class _Rewriter:
    """Rewrites one function; ``alter`` gives the new call of an operator, or None."""

    def __init__(self, alter: Alter) -> None:
        self.alter = alter
        self.laid: dict[Any, Any] = {}
        self.memo: dict[Any, Any] = {}
        self.moved: dict[tuple[Any, str, str], Any] = {}

    def function(self, func: Function) -> Function:
        return func.replace(body=ir.with_deep_stack(lambda: self.realized(func.body)))

    def realized(self, e: ir.Expr) -> Any:
        """Return the new expression in the layout that the old one had."""
        if e not in self.memo:
            self.memo[e] = self.back(self.visited(e))
        return self.memo[e]

    def back(self, laid: Any) -> Any:
        if isinstance(laid, list):
            return Tuple(tuple(map(self.back, laid)))
        return self.transformed(laid.value, laid.new, laid.old) if laid.new is not None else laid.value

    def visited(self, e: ir.Expr) -> Any:
        """Return the new expression with its layouts; of a tuple, a list of them."""
        if e not in self.laid:
            self.laid[e] = self.rewritten(e)
        return self.laid[e]

    def rewritten(self, e: ir.Expr) -> Any:
        if type(e) is Tuple:
            return [self.visited(f) for f in e.fields]
        if type(e) is TupleGetItem:
            whole = self.visited(e.tuple_value)
            if isinstance(whole, list):
                return whole[e.index]
        if type(e) is Call and isinstance(e.op, ir.Op):
            made = self.call(e)
            if made is not None:
                return made
        new = map_parts(e, self.realized)
        return _Laid(new)

    def call(self, e: Call) -> Any:
        """Return a call in its new layout; None where nothing is known of its layouts."""
        groups = [self.visited(a) for a in e.args]
        if any(isinstance(g, list) and any(isinstance(f, list) for f in g) for g in groups):
            return None
        given = [f for g in groups for f in (g if isinstance(g, list) else [g])]
        types = [t for a in e.args for t in (a.ty.fields if isinstance(a.ty, ir.TupleType) else (a.ty,))]
        if len(types) != len(given) or not all(isinstance(t, ir.TensorType) for t in types):
            return None
        first = infer_layouts(e, None, [g.old for g in given], types)
        if first is None:
            return None
        args = [Tuple(tuple(f.value for f in g)) if isinstance(g, list) else g.value for g in groups]
        altered = self.alter(e, first.new_attrs, args)
        new_call = Call(e.op, tuple(args), first.new_attrs) if altered is None else _call_of(altered)
        have = [o if g.new is None else g.new for g, o in zip(given, first.input_layouts, strict=True)]
        second = infer_layouts(new_call, list(have), list(first.input_layouts), types)
        if second is None or len(second.output_layouts) != len(first.output_layouts):
            return None
        before, after = (*have, *first.output_layouts), (*second.input_layouts, *second.output_layouts)
        if not all(_convertible(a, b) for a, b in zip(before, after, strict=True)):
            return None
        made = self.with_arguments(e, new_call, second, have, types)
        if isinstance(e.ty, ir.TupleType):
            outputs = zip(first.output_layouts, second.output_layouts, strict=True)
            return [_Laid(TupleGetItem(made, i), *layouts) for i, layouts in enumerate(outputs)]
        return _Laid(made, first.output_layouts[0], second.output_layouts[0])

    def with_arguments(self, e: ir.Expr, call: Any, found: Any, have: Sequence[Any], types: Sequence[Any]) -> Call:
        """Bring the arguments of a call into the layouts that it takes."""
        layouts = iter(zip(have, found.input_layouts, types, strict=True))
        args = []
        for a in call.args:
            if isinstance(a, Tuple):
                args.append(Tuple(tuple(self.transformed(f, *next(layouts)) for f in a.fields)))
            else:
                args.append(self.transformed(a, *next(layouts)))
        attrs = {k: v for k, v in found.new_attrs.items if k in get(call.op).attrs}
        return Call(call.op, tuple(args), Attrs.of(attrs), span=e.span)

    def transformed(self, value: Any, have: Any, want: Any, ty: ir.TensorType | None = None) -> Any:
        """Bring a value from one layout into another; missing axes of size 1 come first."""
        if have == want or want is None or (ty is not None and ty.ndim == 0):
            return value
        key = (value, have, want)
        if key not in self.moved:
            self.moved[key] = _transformed(value, have, want)
        return self.moved[key]


def _call_of(made: Any) -> Call:
    call = made.astuple() if isinstance(made, TupleWrapper) else made
    if not isinstance(call, Call) or not isinstance(call.op, ir.Op):
        raise InvalidArgument("what stands for an operator in another layout is a call of one", found=str(made)[:60])
    return call


def _convertible(have: str | None, want: str | None) -> bool:
    """Whether one layout can be brought into another."""
    if not have or not want:
        return True
    return set(primal(have)) <= set(primal(want))


def _transformed(value: Any, have: str, want: str) -> Any:
    missing = [c for c, _ in blocks(want) if c.isupper() and c not in primal(have)]
    if missing:
        value = op_call("expand_dims", value, axis=0, num_newaxis=len(missing))
        have = "".join(missing) + have
    return value if have == want else op_call("layout_transform", value, src_layout=have, dst_layout=want)
