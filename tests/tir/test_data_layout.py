"""Layouts by letters, and the ways between them."""

import re

import numpy as np
import pytest

from tests.refusals import refuses
from weft import error, tir

SHAPE = {"A": 8, "B": 12, "C": 5}


def _blocked(x, name):
    """The array in a layout, by reshapes and one transposition."""
    dims = [re.findall(r"(\d*)([A-Za-z])", d) for d in re.findall(r"\[[^]]*\]|\d*[A-Za-z]", name)]
    blocks = {n: int(size) for dim in dims for size, n in dim if size}
    order = [m for n in SHAPE for m in (n, n.lower()) if m in name]
    sizes = {n: SHAPE[n] // blocks.get(n.lower(), 1) for n in SHAPE} | blocks
    split = x.reshape([sizes[n] for n in order]).transpose([order.index(n) for dim in dims for _, n in dim])
    return split.reshape([int(np.prod([sizes[n] for _, n in dim])) for dim in dims])


@pytest.mark.parametrize("name", ["ABC", "CAB", "ABC4b", "BCA2a6b", "ACB[2a4b]", "[4b4a]ACB", "B3bA2aC"])
def test_places_are_those_of_reshaped_arrays(name):
    way = tir.BijectiveLayout("ABC", name)
    x = np.arange(8 * 12 * 5).reshape(8, 12, 5)
    y = _blocked(x, name)
    assert tuple(map(int, way.forward_shape(x.shape))) == y.shape
    assert tuple(map(int, way.backward_shape(y.shape))) == x.shape
    for at in ((0, 0, 0), (7, 11, 4), (3, 7, 2), (5, 4, 1)):
        there = tuple(map(int, way.forward_index(at)))
        assert y[there] == x[at]
        assert tuple(map(int, way.backward_index(there))) == at


def test_names_and_factors():
    layout = tir.layout("NCHW16c", "int64")
    assert (len(layout), layout[4], layout[-5], str(layout)) == (5, "16c", "N", "NCHW16c")
    assert [layout.factor_of(x) for x in "CcNO"] == [16, 16, -1, -1]
    assert [layout.index_of(x) for x in ("N", "16c", "c", "O")] == [0, 4, 4, -1]
    assert "c" in layout and "O" not in layout and "4i" in tir.layout("OI[4o4i]")[-1]
    assert {axis.var.dtype for axis in layout.axes} == {"int64"} and int(layout.axes[4].dom.extent) == 16
    refuses(IndexError, "no dimension 5", lambda: layout[5])
    refuses(TypeError, "int32 or int64", tir.layout, "NC", "float32")


@pytest.mark.parametrize("bad", ["[N4o]C", "C4o", "OI[4o4i][]", "C4c[4c]", "NN", "N-C", "N0n"])
def test_what_is_no_layout_is_refused(bad):
    refuses(error.InvalidArgument, "unknown layout", tir.layout, bad)


def test_layouts_of_other_axes_have_no_way():
    for pair in (("NCHW", "ABCD"), ("", "NCHW"), ("__undef__", "__undef__"), ("", "")):
        assert tir.bijective_layout(*pair) is None
    refuses(error.InvalidArgument, "has 4 dimensions", tir.BijectiveLayout("NCHW", "NHWC").forward_index, (1, 2))
