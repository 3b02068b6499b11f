"""Lets tvm_ffi compare and hash our nodes: ``tvm_ffi.structural_equal``, ``structural_hash`` and ``StructuralKey``.

A node crosses the ABI as an opaque Python object, so what a type may register there for its own comparison is
registered for these. Whether free variables may correspond is known to the comparison under way, which is asked with a
free variable of its own for each of ours, so that they correspond all over an array of nodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from tvm_ffi import LIB, Object, core
from tvm_ffi.dataclasses import py_class

from weft.ir.module import IRModule
from weft.ir.node import Node, saved_fields
from weft.ir.structural import structural_equal, structural_hash


class _Metadata(ctypes.Structure):
    """``TVMFFITypeMetadata`` of the C API."""

    _fields_ = (
        ("doc", ctypes.c_char_p),
        ("doc_size", ctypes.c_size_t),
        ("creator", ctypes.c_void_p),
        ("total_size", ctypes.c_int32),
        ("structural_eq_hash_kind", ctypes.c_int32),
    )


_TREE_NODE = 1


@py_class("weft.FreeVar", structural_eq="var")
class _FreeVar(Object):
    """Stands for a free variable in a comparison of tvm_ffi's."""


_FREE_VARS: WeakKeyDictionary[Any, _FreeVar] = WeakKeyDictionary()


def _free_var(var: Any) -> _FreeVar:
    return _FREE_VARS.setdefault(var, _FreeVar())


def _equal(lhs: Any, rhs: Any, compare: Callable[..., bool]) -> bool:
    _refuse_foreign(lhs)
    return structural_equal(lhs, rhs, lambda a, b: bool(compare(_free_var(a), _free_var(b), 0, "free_var")))


def _hash(value: Any, seed: int, combine: Callable[..., int]) -> int:
    _refuse_foreign(value)
    return combine(structural_hash(value, map_free_vars=True) >> 1, seed, 0)  # it does not say whether they are


def _refuse_foreign(value: Any) -> None:
    if not isinstance(value, (Node, IRModule)) and not saved_fields(type(value)):
        raise TypeError(f"a {type(value).__name__} has no structure that tvm_ffi could compare")


def _register() -> None:
    opaque: Any = core._object_type_key_to_index("ffi.OpaquePyObject")
    LIB.TVMFFITypeRegisterMetadata(opaque, ctypes.byref(_Metadata(structural_eq_hash_kind=_TREE_NODE)))
    core._register_type_attr(opaque, "__s_equal__", _equal)
    core._register_type_attr(opaque, "__s_hash__", _hash)


_register()
