"""Sparse weights of layers as compressed rows of blocks (BSR), of which the program makes the matrix."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from weft import ir, runtime
from weft.relay.expr import Call, Function, Var, const
from weft.relay.infer import infer_type
from weft.relay.op import call
from weft.relay.types import TensorType
from weft.relay.walk import parts, subexpressions, substitute

Params = MutableMapping[str, runtime.Tensor]
_PARTS = ("data", "indices", "indptr")


def convert(
    func: Function, params: Params, blocksize: tuple[int, int], sparsity_threshold: float
) -> tuple[Function, Params]:
    """Store weights of ``nn.dense`` without their blocks of zeros, where at least a part of a weight is zero.

    Parameters
    ----------
    params : dict
        The weights by name; where they are made of whole blocks, ``w.data`` (n, rows, columns), ``w.indices`` (n,) and
        ``w.indptr`` take the place of ``w``, here and in the function, which are both returned.
    """
    (high, wide), made = blocksize, dict[Any, Any]()
    for weight in [p for p in func.params if p in weights_of(func) and p.name_hint in params]:
        name, matrix = weight.name_hint, params[weight.name_hint].numpy()
        rows, columns = matrix.shape
        if min(blocksize) < 1 or rows % high or columns % wide or (matrix == 0).mean() < sparsity_threshold:
            continue
        blocks = matrix.reshape(rows // high, high, columns // wide, wide).swapaxes(1, 2)
        kept = (blocks != 0).any(axis=(2, 3))
        starts = np.concatenate(([0], np.cumsum(kept.sum(axis=1))))
        arrays = (np.ascontiguousarray(blocks[kept]), np.nonzero(kept)[1].astype("int32"), starts.astype("int32"))
        types: list[Any] = [TensorType(a.shape, str(a.dtype)) for a in arrays]  # type: ignore[arg-type]
        stored = [Var(f"{name}.{n}", ty) for n, ty in zip(_PARTS, types, strict=True)]
        params.update({v.name_hint: runtime.tensor(a) for v, a in zip(stored, arrays, strict=True)})
        del params[name]
        made[weight] = _whole(stored[0], stored[1], stored[2], blocks.shape)
    return replaced(func, made), params


def _whole(data: Var, indices: Var, indptr: Var, shape: tuple[int, ...]) -> Call:
    """The matrix of which blocks are kept; a block's row is how many rows begin before or with it, but one."""
    down, across, high, wide = shape
    count = data.ty.shape[0]  # type: ignore[union-attr]
    begun = call(
        "scatter_nd",
        const(np.zeros(int(count) + 1, "int32")),
        call("expand_dims", indptr, axis=0),
        const(np.ones(down + 1, "int32")),
        mode="add",
    )
    rows = call("subtract", call("cumsum", begun, axis=0), const(1, "int32"))
    rows = call("strided_slice", rows, begin=(0,), end=(count,), strides=(1,))
    zeros = call("zeros", shape=shape, dtype=data.ty.dtype)  # type: ignore[union-attr]
    blocks = call("scatter_nd", zeros, call("stack", (rows, indices), axis=0), data)
    return call("reshape", call("transpose", blocks, axes=(0, 2, 1, 3)), newshape=(down * high, across * wide))


def weights_of(func: Function) -> set[Any]:
    """What layers (``nn.dense``) of a function multiply by."""
    dense = ir.Op.get("nn.dense")
    return {e.args[1] for e in subexpressions(func) if type(e) is Call and e.op is dense}


def replaced(func: Function, made: Mapping[Any, Any]) -> Function:
    """Put expressions in the place of others; parameters that nothing uses any more go, new variables are some."""
    body = substitute(func.body, made)
    used = dict.fromkeys(v for e in subexpressions(body) for v in (e, *parts(e)) if type(v) is Var)
    gone = {v for m in made for v in subexpressions(m)} - used.keys()
    params = [*(p for p in func.params if p not in gone), *(v for v in used if v not in func.params)]
    return infer_type(Function(tuple(params), body, None, func.type_params, func.attrs))  # type: ignore[return-value]
