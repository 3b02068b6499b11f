"""The different elements of vectors."""

import numpy as np

from tests.relay.op.contract import Case, Sizes, call, cases


def _padded(values, n, like):
    return np.concatenate([values, np.full(n - len(values), like, values.dtype)])


@cases("unique")
def _sorted(s: Sizes) -> Case:
    def expect(x):
        values, first, inverse, counts = np.unique(x, True, True, True)
        n = len(x)
        return (
            _padded(values, n, 0),
            _padded(np.int32(first), n, 2**31 - 1),
            np.int32(inverse),
            np.int32([len(values)]),
            _padded(np.int32(counts), n, 0),
        )

    return call(s.integer(s.c, low=0, high=5), return_counts=True, expect=expect)


@cases("unique")
def _in_order(s: Sizes) -> Case:
    def expect(x):
        values = list(dict.fromkeys(x.tolist()))
        first = [x.tolist().index(v) for v in values]
        n = len(x)
        return (
            _padded(np.array(values, x.dtype), n, 0),
            _padded(np.int32(first), n, 2**31 - 1),
            np.int32([values.index(v) for v in x]),
            np.int32([len(values)]),
        )

    return call(s.integer(s.b, low=0, high=5, dtype="int32"), sorted=False, expect=expect)
