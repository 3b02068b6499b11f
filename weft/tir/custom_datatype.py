"""Types of numbers that a program brings: their names, and what the operations on them become (``target.datatype``)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from weft import error, ffi
from weft.ir import CallIntrin, Cast, DataType, FloatImm, PrimExpr, Select, cast, with_lanes
from weft.spelling import also_called
from weft.tir import intrin
from weft.tir.intrin import LEAST, call_pure_extern, reinterpret

__all__ = [
    "create_lower_func",
    "create_min_lower_func",
    "get_type_code",
    "get_type_name",
    "get_type_registered",
    "has_lowering",
    "has_lowerings",
    "lower_call_pure_extern",
    "lower_ite",
    "lowering_of",
    "register",
    "register_min_func",
    "register_op",
    "registered",
    "registered_types",
    "stored_as",
]

Lowering = Callable[[Any], PrimExpr]
_NAMES: dict[int, str] = {}
_CODES: dict[str, int] = {}
_OPS: dict[tuple[str, str, str, str], Lowering] = {}


def register(type_name: str, type_code: int) -> None:
    """Make a type known; its data types are written ``custom[name]bits``.

    Parameters
    ----------
    type_code : int
        A number from 129 up that no other type has; 128 and below are DLPack's.
    """
    if not type_name.isidentifier():
        raise error.InvalidArgument("a type's name has letters, digits and underscores", found=repr(type_name))
    if type_code <= 128 or _NAMES.get(type_code, type_name) != type_name:
        raise error.InvalidArgument(
            f"type code {type_code} is taken", expected="an unused number from 129 up", found=_NAMES.get(type_code)
        )
    if _CODES.get(type_name, type_code) != type_code:
        raise error.InvalidArgument(f"type '{type_name}' has the code {_CODES[type_name]}", found=str(type_code))
    _NAMES[type_code], _CODES[type_name] = type_name, type_code
    for ask in (get_type_code, get_type_name):  # tensors ask them, and keep the first ones until after Python's end
        name = ask.__name__.replace("get_type", "dtype.get_custom_type")
        if ffi.get_global_func(name, allow_missing=True) is None:
            ffi.register_global_func(name, ask)


def registered() -> bool:
    """Whether there is any such type."""
    return bool(_CODES)


def registered_types() -> list[tuple[str, int]]:
    """List the types: names and codes."""
    return sorted(_CODES.items())


def has_lowerings() -> bool:
    """Whether there are functions that say what a type means."""
    return bool(_OPS)


def get_type_name(type_code: int) -> str:
    """Return the name of a type."""
    if type_code not in _NAMES:
        raise error.InvalidArgument(f"no type has the code {type_code}", help="register it first")
    return _NAMES[type_code]


def get_type_code(type_name: str) -> int:
    """Return the code of a type."""
    if type_name not in _CODES:
        raise error.InvalidArgument(f"there is no type '{type_name}'", help="register it first")
    return _CODES[type_name]


def get_type_registered(type_code: int) -> bool:
    """Whether a code is that of a type."""
    return type_code in _NAMES


def _key(dtype: str) -> str:
    """Return the name by which operations are registered: of a type, or ``float``, ``int``, ``uint``, ``bool``."""
    code = DataType(dtype).code
    return code[7:-1] if code.startswith("custom[") else code


def register_op(
    lower_func: Lowering,
    op_name: str,
    target: str,
    src_type_name: str,
    dest_type_name: str | None = None,
    intrinsic_name: str | None = None,
) -> None:
    """Say what an operation on a type becomes.

    Parameters
    ----------
    lower_func : callable
        From the operation, whose operands are bits already, to an expression on bits.
    op_name : str
        The class of the node: ``"Add"``, ``"LT"``, ``"FloatImm"``, ``"Cast"`` (with both types), ``"Call"`` (with the
        name of the intrinsic).
    target : str
        A kind of target.
    """
    if op_name == "Cast" and dest_type_name is None:
        raise error.InvalidArgument("a Cast goes to a type", help="give dest_type_name")
    if op_name == "Call" and intrinsic_name is None:
        raise error.InvalidArgument("a Call is of an intrinsic", help="give intrinsic_name")
    _OPS[op_name, target, src_type_name, dest_type_name or intrinsic_name or ""] = lower_func


def has_lowering(op: CallIntrin, target: str, src: str) -> bool:
    """Whether something was registered for a call of an intrinsic."""
    return ("Call", target, _key(src), op.op.name) in _OPS


def lowering_of(op: PrimExpr, target: str, src: str, extra: str = "") -> Lowering:
    """Return what was registered for an operation.

    Raises CodegenError when nothing was.
    """
    name = "Call" if isinstance(op, CallIntrin) else type(op).__name__
    if isinstance(op, Cast):
        extra = _key(extra)
    found = _OPS.get((name, target, _key(src), extra))
    if found is None:
        what = f"{name} of '{_key(src)}'" + (f" ({extra})" if extra else "")
        raise error.CodegenError(
            f"{what} has no meaning on target '{target}'",
            where=op.span,
            help="say what it becomes with target.datatype.register_op",
        )
    return found


def register_min_func(func: Callable[[int], PrimExpr], type_name: str) -> None:
    """Say what the least value of a type is: a function of the number of bits; ``tir.min_value`` asks it."""
    get_type_code(type_name)
    LEAST[f"custom[{type_name}]"] = func


def stored_as(dtype: str) -> str:
    """Return the type in which the bits of a value are kept."""
    dt = DataType(dtype)
    return with_lanes(f"uint{dt.bits}", dt.lanes) if dt.is_custom else dt


def create_lower_func(extern_func_map: Mapping[Any, str]) -> Lowering:
    """Make a lowering that calls C functions.

    Parameters
    ----------
    extern_func_map : mapping
        From the number of bits of the type to the function's symbol; for a Cast from pairs of source and target bits.
    """

    def lower(op: Any) -> PrimExpr:
        dt = DataType(op.dtype)
        result, key = stored_as(dt), DataType(op.dtype).bits
        if isinstance(op, Cast):
            key = (DataType(op.value.dtype).bits, dt.bits)
            args: list[Any] = [op.value]
        elif isinstance(op, FloatImm):
            args = [FloatImm("float32", op.value)]
        elif isinstance(op, CallIntrin):
            args = list(op.args)
        else:
            args = [op.a, op.b]
            key = DataType(op.a.dtype).bits
        if key not in extern_func_map:
            raise error.CodegenError(
                f"there is no function for {type(op).__name__} of {key} bits",
                expected=", ".join(map(str, extern_func_map)),
            )
        return _call(result, extern_func_map[key], *args)

    return lower


def _call(result: str, symbol: str, *args: Any) -> PrimExpr:
    """Call a C function of bits; TVM's library has those of its example type, which is float32."""
    if symbol not in _EXAMPLE:
        return call_pure_extern(result, symbol, *args)
    floats = [reinterpret("float32", a) if a.dtype == "uint32" else cast("float32", a) for a in args]
    value = _EXAMPLE[symbol](*floats)
    return value if result == "float32" else reinterpret(result, value)


_EXAMPLE: dict[str, Callable[..., PrimExpr]] = {
    **dict.fromkeys(("FloatToCustom32", "IntToCustom32", "Custom32ToFloat"), lambda a: a),
    "Custom32Add": operator.add,
    "Custom32Sub": operator.sub,
    "Custom32Mul": operator.mul,
    "Custom32Div": operator.truediv,
    "Custom32Max": lambda a, b: Select(a > b, a, b),
    "Custom32Sqrt": intrin.sqrt,
    "Custom32Exp": intrin.exp,
    "Custom32Log": intrin.log,
    "Custom32Sigmoid": intrin.sigmoid,
    "Custom32Tanh": intrin.tanh,
}


@also_called(ite_op="op")
def lower_call_pure_extern(op: CallIntrin) -> PrimExpr:
    """Return a call of an intrinsic that only moves bits: a choice, or a C function of them."""
    return CallIntrin(stored_as(op.dtype), op.op, op.args)


lower_ite = lower_call_pure_extern


def create_min_lower_func(extern_func_map: Mapping[int, str], type_name: str) -> Callable[[int], PrimExpr]:
    """Make what :func:`register_min_func` takes, from C functions without arguments by the number of bits."""

    def least(bits: int) -> PrimExpr:
        if bits not in extern_func_map:
            raise error.CodegenError(
                f"there is no least value of {bits} bits of '{type_name}'",
                expected=", ".join(map(str, extern_func_map)),
            )
        result, symbol = f"custom[{type_name}]{bits}", extern_func_map[bits]
        return (
            FloatImm(result, -(2.0 - 2.0**-23) * 2.0**127)
            if symbol == "MinCustom32"
            else call_pure_extern(result, symbol)
        )

    return least
