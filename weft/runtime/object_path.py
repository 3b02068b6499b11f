"""Paths from an object to a part of it: tvm_ffi's ``AccessPath``, with the names that its steps had until 0.21."""

from __future__ import annotations

from typing import NamedTuple

from tvm_ffi.access_path import AccessPath as ObjectPath

_STEPS = {"array_index": "array_item", "missing_array_element": "array_item_missing", "map_value": "map_item"}
for _old, _new in _STEPS.items():
    setattr(ObjectPath, _old, getattr(ObjectPath, _new))
ObjectPath.missing_map_entry = lambda self: self.map_item_missing(None)  # type: ignore[attr-defined] - once without a key


class ObjectPathPair(NamedTuple):
    """Where two objects that are compared differ."""

    lhs_path: ObjectPath
    rhs_path: ObjectPath
