"""Operators of ``ai.onnx.ml`` on maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import InvalidArgument
from weft.runtime.host.registry import host_operator


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
