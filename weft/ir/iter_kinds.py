"""Kinds of iteration variables: their names here, and TVM's numbers and names for them."""

from typing import Any

from weft.error import InvalidArgument

ITER_TYPES = "data_par thread reduce ordered opaque unrolled vectorized parallelized tensorized".split()
_TVM: dict[Any, str] = {
    **dict(enumerate(ITER_TYPES)),
    **{k.title(): k for k in ITER_TYPES},
    "DataPar": "data_par",
    "ThreadIndex": "thread",
    "CommReduce": "reduce",
}


def iter_type(kind: int | str) -> str:
    """Return the name of a kind that is given as TVM does.

    Raises
    ------
    InvalidArgument
        When there is no such kind.
    """
    if kind not in _TVM:
        raise InvalidArgument("an axis has no such kind", expected=", ".join(ITER_TYPES), found=str(kind))
    return _TVM[kind]
