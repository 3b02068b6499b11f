"""What a compiled function says of wrong arguments: which one, what was expected, what was found."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import te
from weft.error import InvalidArgument


@pytest.fixture(scope="module", params=["llvm", "llvm, of two", "c"])
def kernel(request):
    n = te.size_var("n")
    a, b = te.placeholder((n, 4), name="A"), te.placeholder((n,), name="B")
    k, f = te.var("k", "int32"), te.var("f", "float32")
    c = te.compute((n, 4), lambda i, j: a[i, j] * b[i] + k.astype("float32") + f, name="C")
    args = [a, b, k, f, c]
    if request.param == "llvm, of two":  # which share what checks arguments
        parts = [weft.lower(te.create_schedule(c.op), args, name=name) for name in ("other", "kernel")]
        return weft.build(weft.IRModule({v.name_hint: f for part in parts for v, f in part.items()}), "llvm")["kernel"]
    return weft.build(te.create_schedule(c.op), args, request.param, name="kernel")


def good(rows=3):
    return [np.ones((rows, 4), "float32"), np.full(rows, 2, "float32"), 3, 0.5, np.zeros((rows, 4), "float32")]


def unaligned():
    return np.zeros(64, "uint8")[1:49].view("float32").reshape(3, 4)


WRONG = {
    "rank": (0, np.ones(12, "float32"), ValueError, r"Mismatched A.ndim on argument #0 .*expected 2, found 1"),
    "shape": (0, np.ones((3, 5), "float32"), ValueError, r"Invalid A.shape\[1\] .*expected 4, found 5"),
    "shared size": (
        1,
        np.ones(4, "float32"),
        ValueError,
        r"Mismatched B.shape\[0\] on argument #1 .*expected to match A.shape\[0\] == 3, found 4",
    ),
    "dtype": (0, np.ones((3, 4), "float64"), TypeError, "Mismatched A.dtype .*expected float32, found float64"),
    "strides": (0, np.ones((4, 3), "float32").T, ValueError, "Mismatched A.strides .*expected to be compact array"),
    "alignment": (4, unaligned(), ValueError, r"Misaligned Tensor data on argument #4 .*data alignment=4 bytes"),
    "none": (0, None, TypeError, "Mismatched type on argument #0 .*expected Tensor"),
    "text": (1, "x", TypeError, "expected Tensor"),
    "list": (0, [[1.0] * 4] * 3, TypeError, "expected Tensor"),
    "float for int": (2, 2.5, TypeError, r"Mismatched type on argument #2 .*k: int32.*expected int"),
    "tensor for int": (2, np.ones(1), TypeError, "expected int"),
    "large int": (2, 1 << 40, ValueError, "an int that int32 can hold, found .*1099511627776"),
    "text for float": (3, "1", TypeError, r"Mismatched type on argument #3 .*expected float"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_argument(kernel, case):
    place, value, error, message = WRONG[case]
    arguments = good()
    arguments[place] = value
    refuses(error, "(?s)" + message, kernel, *arguments)
    arguments = good()
    kernel(*arguments)
    np.testing.assert_array_equal(arguments[4], np.full((3, 4), 5.5, "float32"))


@pytest.mark.parametrize("place", [0, 1, 4])
def test_a_tensor_without_memory(kernel, place):
    torch = pytest.importorskip("torch")
    arguments = good()
    arguments[place] = torch._efficientzerotensor(arguments[place].shape)
    refuses(ValueError, f"(?s)Missing Tensor data on argument #{place} .*found a null pointer", kernel, *arguments)
    kernel(torch.empty(0, 4), torch.empty(0), 3, 0.5, torch.empty(0, 4))


@pytest.mark.parametrize("count", [0, 4, 6])
def test_wrong_count(kernel, count):
    refuses(TypeError, rf"Expected 5 arguments .*\n.*kernel\(A: .*\n.*found {count}", kernel, *(good() + [1])[:count])


def test_what_is_allowed(kernel):
    arguments = good()
    arguments[3] = 2  # an int for a float
    arguments[2] = -(1 << 31)
    kernel(*arguments)
    np.testing.assert_array_equal(arguments[4], np.full((3, 4), 2 + np.float32(-(1 << 31)) + 2, "float32"))
    kernel(*good(rows=0))
    arguments = good()
    arguments[0] = np.ones((3, 8), "float32")[:, :4].copy()
    arguments[1] = np.ones((1, 3), "float32")[0]
    kernel(*arguments)
    np.testing.assert_array_equal(arguments[4], np.full((3, 4), 4.5, "float32"))


def frozen(array):
    array.flags.writeable = False
    return array


def test_outputs_that_cannot_be_written(kernel):
    """Inputs may be read-only; what is written into one is an error and not lost without a word."""
    arguments = good()
    arguments[0], arguments[1] = frozen(arguments[0]), frozen(arguments[1])
    kernel(*arguments)
    np.testing.assert_array_equal(arguments[4], np.full((3, 4), 5.5, "float32"))
    arguments[4] = frozen(np.zeros((3, 4), "float32"))
    refuses(InvalidArgument, "argument 4: the function writes this array, which is read-only", kernel, *arguments)
    np.testing.assert_array_equal(arguments[4], 0)
    arguments[4] = np.zeros((3, 4), ">f4")
    with pytest.raises(InvalidArgument, match="argument 4: the function writes this array, which has a layout or byte"):
        kernel(*arguments)
    kernel(*good(rows=0)[:4], frozen(np.zeros((0, 4), "float32")))
