"""AnnotateTarget: which operators an external compiler takes, written into the program as annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import force_setattr

from weft import ir
from weft.relay.analysis.annotated_regions import BEGIN, END, annotation_of
from weft.relay.expr import Call, Function, If, Let, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem, Var
from weft.relay.op.registry import op_call
from weft.relay.transform.typed_pass import over_typed_functions, with_types
from weft.relay.walk import map_parts, rewrite_with_original

DEFAULT = "default"
"""The compiler of what no other one takes."""

_NOT_CALLS = (Tuple, TupleGetItem, RefCreate, RefRead, RefWrite)


@with_types
def AnnotateTarget(targets: str | Sequence[str], include_non_call_ops: bool = True) -> ir.Pass:
    """Make the pass that encloses each operator in annotations that name the compiler that takes it.

    A function ``fn(call)``, registered with an operator as ``target.<name>``, says whether a compiler takes a call of
    it; a function with ``Composite`` goes to the compiler that the name begins with (``"dnnl.conv_relu"``). All others
    go to ``"default"``.

    Parameters
    ----------
    targets : str or sequence of str
        The compilers; the first that takes a call gets it. A call that an earlier run gave to one stays there.
    include_non_call_ops : bool
        Whether tuples, fields of tuples and references are enclosed, too; they go where their parts come from.

    Source: TVM's ``AnnotateTarget``.
    """
    names = [targets] if isinstance(targets, str) else [str(t) for t in targets]

    def annotate(func: Function) -> Function:
        return _Annotator(names, include_non_call_ops).function(func)

    return ir.Pass("AnnotateTargetFunc", over_typed_functions(annotate), 0, AnnotateTarget.__doc__)


class _Annotator:
    """Annotates one function; ``compiler_of`` knows what was given to whom, by the new expressions."""

    def __init__(self, targets: Sequence[str], with_glue: bool) -> None:
        self.targets, self.with_glue = targets, with_glue
        self.compiler_of: dict[Any, str] = {}

    def function(self, func: Function) -> Function:
        return rewrite_with_original(func, self.rule, pre=_untouched)

    def rule(self, old: Any, new: Any) -> Any:
        kind = type(old)
        if kind is Call:
            return self.call(old, new)
        if kind is Function:
            return new.replace(body=self.closed(new.body))
        if kind is Let:
            value = new.value if isinstance(new.value, Function) else self.enclosed([new.value])[1][0]
            return Let(new.var, value, self.closed(new.body), ty=new.ty, span=new.span)
        if kind is If:
            return map_parts(new, self.closed)
        if kind in _NOT_CALLS:
            return self.glue(new)
        return new

    def call(self, old: Call, new: Call) -> Any:
        if annotation_of(old, BEGIN) is not None:
            return new
        if (compiler := annotation_of(old, END)) is not None:
            self.compiler_of.setdefault(new.args[0], compiler)
            return new
        if old.args and annotation_of(old.args[0], BEGIN) not in (None, DEFAULT):
            return new
        compiler = next((t for t in self.targets if _takes(t, old)), DEFAULT)
        if isinstance(old.op, Var) and not self.with_glue:
            return map_parts(new, lambda e: e if e is new.op else self.closed(e))
        _, args = self.enclosed(new.args, compiler)
        made = Call(new.op, tuple(args), new.attrs, new.ty_args, ty=old.ty, span=new.span)
        self.compiler_of[made] = compiler
        return made

    def glue(self, new: Any) -> Any:
        """Annotate what is no call: its parts are closed, or it goes where all of them come from."""
        if not self.with_glue:
            return map_parts(new, self.closed)
        taken = list(new.fields) if type(new) is Tuple else [getattr(new, f) for f in _PARTS_OF[type(new)]]
        compiler, inside = self.enclosed(taken)
        by_part = iter(inside)
        made = map_parts(new, lambda _: next(by_part))
        if made is new and inside:
            return new
        self.compiler_of[made] = compiler
        return made

    def enclosed(self, args: Sequence[Any], compiler: str = "") -> tuple[str, list[Any]]:
        """Close what arguments are made by, and begin a region of `compiler`, or of the one that made them all."""
        common, given, closed = "", [], []
        for arg in args:
            source = self.compiler_of.get(arg, DEFAULT)
            if (begun := annotation_of(arg, BEGIN)) is not None:
                given.append(arg) if begun != DEFAULT else closed.append(arg.args[0])
                source = annotation_of(arg.args[0], END) or DEFAULT
            else:
                closed.append(self.closed(arg) if arg in self.compiler_of else arg)
            common = source if common in ("", source) else DEFAULT
        if not common:
            return compiler, list(args)
        return compiler or common, [*given, *(_annotated(BEGIN, c, compiler or common) for c in closed)]

    def closed(self, expr: Any) -> Any:
        """End the region that an expression is in; what has no arguments began none."""
        if annotation_of(expr, END) == DEFAULT:
            expr = expr.args[0]
        compiler = self.compiler_of.get(expr)
        if compiler is None or (type(expr) in (Call, Tuple) and not (expr.args if type(expr) is Call else expr.fields)):
            return expr
        made = _annotated(END, expr, compiler)
        self.compiler_of[made] = compiler
        return made


_PARTS_OF = {TupleGetItem: ("tuple_value",), RefCreate: ("value",), RefRead: ("ref",), RefWrite: ("ref", "value")}


def _untouched(expr: ir.Expr) -> Any:
    """What belongs to a compiler as it is: the functions that MergeComposite made."""
    return expr if type(expr) is Function and expr.attrs and expr.attrs.get("Composite") else None


def _takes(target: str, call: Call) -> bool:
    if isinstance(call.op, ir.Op):
        check = call.op.get_attr(f"target.{target}")
        return check is not None and bool(check(call))
    composite = str(call.op.attrs.get("Composite") or "") if type(call.op) is Function else ""
    return "." in composite and composite.split(".")[0] == target


def _annotated(name: str, expr: ir.Expr, compiler: str) -> Call:
    made = op_call(name, expr, compiler=compiler)
    force_setattr(made, "ty", expr.ty)
    return made
