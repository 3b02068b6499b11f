"""Operators of ``ai.onnx.ml`` on texts and maps."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.runtime.host.registry import host_operator


def _key(value: Any) -> Any:
    """What stands for a value in a table; NaN, which equals nothing, is one key."""
    return _NAN if value != value else value


_NAN = object()


@lru_cache(maxsize=64)
def _encoding(keys: tuple[Any, ...], values: tuple[Any, ...], nan: int) -> dict[Any, Any]:
    return {_key(k): v for k, v in reversed(list(zip(keys, values, strict=True))) if nan or k == k}


def _listed(data: Any) -> tuple[Any, ...]:
    """Read values: a list, or the bytes of an array with its dtype, so that numbers keep all digits."""
    if isinstance(data, dict):
        return tuple(np.frombuffer(base64.b64decode(data["bytes"]), data["dtype"]).tolist())
    return tuple(data)


@host_operator("LabelEncoder")
def _label_encoder(x: Any, *, keys: Any, values: Any, default: Any, dtype: str, nan: int) -> Any:
    table, other = _encoding(_listed(keys), _listed(values), nan), _listed(default)[0]
    items = x.reshape(-1).tolist()
    known = {v: table.get(_key(v), other) for v in dict.fromkeys(items)}
    out = np.empty(len(items), object if dtype == "string" else dtype)
    out[:] = [known[v] for v in items]
    return out.reshape(x.shape)


@host_operator("ZipMap")
def _zip_map(x: Any, *, keys: list[Any]) -> list[Any]:
    return [dict(zip(keys, row, strict=True)) for row in x.tolist()]


@host_operator("DictVectorizer")
def _dict_vectorizer(x: dict[Any, Any], *, keys: list[Any], dtype: str) -> Any:
    unknown = [k for k in x if k not in keys]
    if unknown:
        raise InvalidArgument("DictVectorizer: a key is not in the vocabulary", found=repr(unknown[0]))
    out = np.empty((1, len(keys)), object if dtype == "string" else dtype)
    out[0, :] = [x.get(k, "" if dtype == "string" else 0) for k in keys]
    return out


@host_operator("CastMap")
def _cast_map(x: dict[int, Any], *, map_form: str, max_map: int, dtype: str) -> Any:
    if map_form == "SPARSE":
        keys: list[Any] = list(range(max_map))
        if any(not 0 <= k < max_map for k in x):
            raise InvalidArgument("CastMap: a key is out of range", expected=f"0 to {max_map - 1}", found=str(list(x)))
    else:
        keys = sorted(x)
    values = [x.get(k, 0) for k in keys]
    out = np.empty((1, len(values)), object if dtype == "string" else dtype)
    out[0, :] = [str(v) for v in values] if dtype == "string" else [float(v) for v in values]
    return out
