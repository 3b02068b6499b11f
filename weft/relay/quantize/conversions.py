"""A quantized network in three parts: floats to integers, integers to integers, integers to floats."""

from __future__ import annotations

from typing import Any

from weft import error, ir
from weft.relay.analysis import all_dtypes, free_vars
from weft.relay.expr import Call, Constant, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from weft.relay.infer import infer_module
from weft.relay.walk import operator_name, rewrite, subexpressions

_CONVERTING = {"add", "multiply", "right_shift", "clip", "round", "cast"}


class NotIntegral(error.LoweringError, AssertionError):
    """A network that was to compute with integers alone has other operators."""


def partition_conversions(mod: ir.IRModule, quantized_dtypes: set[str], ensure_fully_integral: bool) -> ir.IRModule:
    """Cut ``main`` of a quantized module, with types, into what quantizes its inputs, the network, and the rest.

    Parameters
    ----------
    quantized_dtypes : set of str
        The data types of quantized numbers.
    ensure_fully_integral : bool
        Whether the network may have no other data types, and the rest no other operators than converting ones.

    Returns
    -------
    IRModule
        ``quantize_inputs``, ``quantized_main``, ``dequantize_outputs``, and ``main``, which calls them.

    Raises
    ------
    NotIntegral
        When `ensure_fully_integral` does not hold.
    """
    whole: Any = mod["main"]
    before: dict[Var, Any] = {}
    body = rewrite(whole.body, lambda e: e, pre=lambda e: _input(e, before, quantized_dtypes))
    inner = free_vars(body)
    first = Function(whole.params, Tuple(tuple(before.get(v, v) for v in inner)))
    middle, last = _rest(Function(tuple(inner), body), quantized_dtypes)
    if ensure_fully_integral:
        found = all_dtypes(middle) - quantized_dtypes
        other = [str(getattr(e.op, "name", e.op)) for e in subexpressions(last) if type(e) is Call and not _converts(e)]
        if found or other:
            raise NotIntegral(
                "the quantized network is not fully integral",
                expected=f"{', '.join(sorted(quantized_dtypes))} between the conversions",
                found=", ".join([*sorted(found), *other]),
            )
    parts = {
        GlobalVar(n): f
        for n, f in zip(("quantize_inputs", "quantized_main", "dequantize_outputs"), (first, middle, last), strict=True)
    }
    to_integers, network, to_floats = parts
    params = tuple(Var(p.name_hint, p.ty) for p in whole.params)
    given, result, out = (Var(n) for n in ("quantized_inputs", "quantized_outputs", "dequantized_outputs"))
    outputs = (result,) if len(last.params) == 1 else (TupleGetItem(result, i) for i in range(len(last.params)))
    calls = (
        (given, Call(to_integers, params)),
        (result, Call(network, tuple(TupleGetItem(given, i) for i in range(len(inner))))),
        (out, Call(to_floats, tuple(outputs))),
    )
    main: Any = out
    for var, call in reversed(calls):
        main = Let(var, call, main)
    return infer_module(ir.IRModule({**parts, GlobalVar("main"): Function(params, main)}, mod.attrs))


def _converts(e: ir.Expr) -> bool:
    return operator_name(e) in _CONVERTING


def _input(e: Any, before: dict[Var, Any], dtypes: set[str]) -> Any:
    """Return a variable for integers that conversions alone make from parameters, and keep what it stands for."""
    if not _converts(e) or str(getattr(getattr(e, "ty", None), "dtype", "")) not in dtypes:
        return None
    below = [p for p in subexpressions(e) if not isinstance(p, (Constant, ir.Op))]
    names = [p.name_hint for p in below if type(p) is Var]
    if not names or not all(type(p) is Var or _converts(p) for p in below):
        return None
    made = Var(names[0] if len(names) == 1 else "input", e.ty)
    before[made] = e
    return made


def _rest(func: Function, dtypes: set[str]) -> tuple[Function, Function]:
    """Cut a function where its last integers become floats; the first part is all where other floats go on, too."""
    cuts: dict[Any, Var] = {}

    def pre(e: Any) -> Any:
        if str(getattr(getattr(e, "ty", None), "dtype", "")) not in dtypes or isinstance(e, Constant):
            return None
        return cuts.setdefault(e, Var("input", e.ty))

    body = rewrite(func.body, lambda e: e, pre=pre)
    params = tuple(cuts.values())
    if not cuts or set(free_vars(body)) - set(params):
        result = infer_module(ir.IRModule.from_expr(func))["main"].ret_type  # type: ignore[attr-defined]
        same = Var("input", result)
        return func, Function((same,), same)
    results = tuple(cuts)
    return func.replace(body=results[0] if len(results) == 1 else Tuple(results)), Function(params, body)
