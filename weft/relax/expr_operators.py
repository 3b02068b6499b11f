"""Python's operators on Relax expressions: ``x + y``, ``t[0]``, ``f(x)``.

Importing this module puts them on the expressions that Relax shares with Relay, whose own classes have others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from weft import ffi, ir
from weft.error import IndexOutOfRange, InvalidArgument
from weft.op import make_call
from weft.relax.core_ops import as_relax
from weft.relax.infer import function_type, result_type
from weft.relax.inspect_ops import attribute_of
from weft.relax.transform.bind_params import bind_function_params
from weft.relax.transform.bind_symbolic_vars import bind_function_symbols
from weft.relax.transform.inline_private import inline_functions
from weft.spelling import also_called

_DIVISIONS = {"__truediv__": "divide", "__floordiv__": "floor_divide", "__mod__": "mod"}
_BINARY = {"__sub__": "subtract", "__mul__": "multiply", "__pow__": "power", **_DIVISIONS}
_COMPARISONS = {"__lt__": "less", "__le__": "less_equal", "__gt__": "greater", "__ge__": "greater_equal"}


def _binary(op: str, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def operator(a: ir.Expr, b: Any) -> Any:
        if not isinstance(b, (ir.Expr, ir.PrimExpr, int, float)):
            return NotImplemented
        return make_call(op)(b, a) if swapped else make_call(op)(a, b)

    return operator


def _add(a: Any, b: Any) -> Any:
    if isinstance(a.ty, ir.TupleType) and isinstance(b, tuple):
        return (*a, *b)
    return _plus(a, b)


_plus = _binary("add")


def _item(value: ir.Expr, index: Any) -> ir.Expr:
    """Take an element of a tuple; of one whose elements are known, that element."""
    place = int(index.value if isinstance(index, ir.IntImm) else index)
    ty = value.ty
    count = len(ty.fields) if isinstance(ty, ir.TupleType) else None
    if isinstance(ty, ir.TensorType):
        raise InvalidArgument(
            "only elements of tuples are taken by an index",
            found=f"index {place} of {ty}",
            help="use R.take or R.strided_slice on a tensor",
        )
    if count is not None and not -count <= place < count:
        raise IndexOutOfRange("Tuple index out of range", found=f"index {place} of {ty}")
    if count is None:
        return ir.TupleGetItem(value, place)
    place %= count
    return ir.TupleGetItem(value, place, ty=ty.fields[place])


def _elements(value: ir.Expr) -> Iterator[ir.Expr]:
    """Take a tuple apart; without this, Python would ask anything else for elements until an index is refused."""
    if not isinstance(value.ty, ir.TupleType):
        raise InvalidArgument("only tuples of known elements are taken apart", found=str(value.ty))
    return iter([_item(value, i) for i in range(len(value.ty.fields))])


def _field(value: ir.Tuple, index: Any) -> ir.Expr:
    return _element("Tuple", value.fields, index)


def _dimension(value: ir.ShapeExpr, index: Any) -> ir.PrimExpr:
    return _element("ShapeExpr", value.values, index)


def _element(kind: str, items: tuple[Any, ...], index: Any) -> Any:
    place = index.value if isinstance(index, ir.IntImm) else index
    if isinstance(place, int) and not -len(items) <= place < len(items):
        raise IndexOutOfRange(f"{kind} index out of range", found=f"{place} of {len(items)}")
    return items[place]


def _call(func: ir.Expr, *args: Any, attrs: Any = None) -> ir.Call:
    """Call a function: one of the module, of a variable, or a packed one."""
    return ir.Call(func, tuple(as_relax(a) for a in args), ir.Attrs.of(attrs))


def _astype(value: ir.Expr, dtype: Any) -> ir.Call:
    """Convert the elements to another data type."""
    return make_call("astype")(value, str(dtype))


def _bind_params(func: ir.Function, binding_map: Any) -> ir.Function:
    """Return a copy in which some parameters, by themselves or by name, are constants or expressions."""
    return bind_function_params(func.attrs.get("global_symbol") or "the function", func, binding_map)


def _inline_functions(func: ir.Function, function_map: Any) -> ir.Function:
    """Return a copy in which calls of some functions, by variable or by name, are their bindings."""
    return inline_functions(func, function_map)


@also_called(ret_struct_info="ret_ty")
def _create_empty(
    params: Any, ret_ty: ir.Type, is_pure: bool = True, attrs: Any = None, span: Any = None
) -> ir.Function:
    """Make a function without a body, of which only the type is known."""
    func = ir.Function(tuple(params), cast(Any, None), ret_ty, is_pure, ir.Attrs.of(attrs), span=span)
    return func.replace(ty=function_type(func))


def _is_base_of(base: ir.Type, derived: ir.Type) -> bool:
    """Whether all values of a type are of this type."""
    return ir.structural_equal(result_type(base, derived), derived)


def _opaque_func(*, ret: ir.Type | None = None, derive_func: Any = None, purity: bool = False) -> ir.FuncType:
    """Make the type of functions of any arguments."""
    if derive_func is not None:
        raise InvalidArgument("no function derives the type of results", help="say it as ret=")
    return ir.FuncType(None, ret or ir.AnyType(), purity)


def _put(cls: type, methods: dict[str, Any]) -> None:
    for name, method in methods.items():
        setattr(cls, name, method)


_operators: dict[str, Any] = {"__add__": _add, "__radd__": _binary("add", True), "__neg__": make_call("negative")}
for _name, _op in {**_BINARY, **_COMPARISONS}.items():
    _operators[_name] = _binary(_op)
    if _name in _BINARY:
        _operators[f"__r{_name[2:]}"] = _binary(_op, True)

# What can be called would travel to the runtime as a function.
_called: dict[str, Any] = {"__call__": _call, "__tvm_ffi_object__": ffi.as_opaque}
for _cls in (ir.ExprVar, ir.Constant, ir.Tuple, ir.TupleGetItem, ir.Call, ir.If, ir.ExternFunc, ir.ShapeExpr):
    _put(_cls, {**_operators, "__getitem__": _item, "__iter__": _elements, **_called, "astype": _astype})
_put(ir.ExprVar, {"attribute_in_program": attribute_of})
_put(ir.GlobalVar, _called)
_bound: dict[str, Any] = {"bind_params": _bind_params, "bind_symbolic_vars": bind_function_symbols}
_put(ir.Function, {**_called, **_bound, "inline_functions": _inline_functions})
_put(ir.Function, {"create_empty": staticmethod(_create_empty)})
_put(ir.Type, {"is_base_of": _is_base_of})
_put(ir.FuncType, {"opaque_func": staticmethod(_opaque_func), "derive_func": None})
_put(ir.Tuple, {"__getitem__": _field, "__iter__": lambda value: iter(value.fields)})
_put(ir.ShapeExpr, {"__getitem__": _dimension, "__iter__": lambda value: iter(value.values)})
