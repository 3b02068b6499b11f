"""Attributes of every operator: each value is brought into one form, or refused where the call is made."""

import inspect

import numpy as np
import pytest

from tests.op import cases  # noqa: F401 - registers the cases
from tests.op.contract import CASES, SIZES, Sizes, make
from tests.refusals import refuses
from weft import error, relax, script, tir
from weft.ir import Attrs, TensorType, Var, const, structural_equal
from weft.op import get_op_def, in_places, list_ops, make_call
from weft.op.attributes import axes, axis, each_axis

ATTRIBUTES = [(name, key) for name in list_ops() for key in get_op_def(name).attrs]
INTEGERS = [True, False, 0, 1, -1, 2, 7, -7, 1 << 62, 1 << 70, -(1 << 70)]
FLOATS = [0.5, -0.0, float("nan"), float("inf")]
TEXTS = ["", "nonsense", "NCHW", "NHWC", "float32", "float33", "void", b"x", ["tanh"], ["TANH", "Sigmoid"]]
LISTS = [(), [], [0], [1, 1], (2, 2), [0, -1], [1, 2, 3, 4], [[1, 2], [3, 4]], [None, 3], [1.5], range(2)]
ARRAYS = [np.int64(3), np.float32(0.25), np.array([1, 2]), np.array(2), np.bool_(True)]
NODES = [const(3, "int64"), const(0.5, "float32"), Var("n", "int64"), [Var("n", "int64"), 2], Var("f", "float32")]
OTHERS = [None, {"a": 1}, {1, 2}, object(), lambda: 0, 1j]
VALUES = [*INTEGERS, *FLOATS, *TEXTS, *LISTS, *ARRAYS, *NODES, *OTHERS]


def plain(value):
    """Whether a value is of what attributes hold: the form that is printed, hashed and compared."""
    if isinstance(value, tuple):
        return all(map(plain, value))
    known = type(value) in (bool, int, float, str, tir.IndexMap) or hasattr(value, "dtype") or isinstance(value, str)
    return value is None or known


@pytest.mark.parametrize(("name", "key"), ATTRIBUTES)
def test_every_value_has_one_form_or_is_refused(name, key):
    kind = get_op_def(name).attrs[key]
    accepted = 0
    for value in [*VALUES, kind.default]:
        try:
            form = kind.of(value, f"{name}: attribute '{key}'")
        except error.InvalidArgument as e:
            assert key in str(e) and name in str(e) and "expected" in str(e) and "found" in str(e)
            continue
        accepted += 1
        assert plain(form), (value, form)
        assert structural_equal(Attrs.of(a=kind.of(form, "again")), Attrs.of(a=form)), (value, form)
    assert 0 < accepted < len(VALUES)


@pytest.mark.parametrize(("name", "key"), ATTRIBUTES)
def test_defaults_are_in_their_form(name, key):
    kind = get_op_def(name).attrs[key]
    if kind.default is not None:
        assert structural_equal(Attrs.of(a=kind.of(kind.default, key)), Attrs.of(a=kind.default))
    else:
        assert kind.optional or kind.is_layout


def first_case(name):
    for make_case in CASES[name]:
        for sizes in SIZES:
            case = make_case(Sizes(sizes, name))
            if case is not None:
                return case
    raise AssertionError(name)


@pytest.mark.parametrize("name", [n for n in list_ops() if get_op_def(n).attrs])
def test_a_call_takes_or_refuses_each_value(name):
    """With any value of any attribute, inference gives a type or one of Weft's errors."""
    definition, case = get_op_def(name), first_case(name)
    node, _ = make(name, case, False)
    for key in definition.attrs:
        for value in VALUES:
            attrs = {**dict(node.attrs.items), key: value}
            try:
                made = make_call(name)(*node.args, **attrs)
                definition.infer(*made.args, **dict(made.attrs.items))
            except error.WeftError:
                continue


@pytest.mark.parametrize("name", list_ops())
def test_dimensions_that_are_not_there_are_refused(name):
    definition, case = get_op_def(name), first_case(name)
    node, _ = make(name, case, False)
    for key, kind in definition.attrs.items():
        if kind.names_axes in ("one", "some", "each") and kind.checked and isinstance(node.args[0].ty, TensorType):
            ndim = node.args[0].ty.ndim
            for a in (ndim + 1, -ndim - 1, 1 << 40):
                value = a if kind.names_axes == "one" else (a,)
                with pytest.raises((error.ShapeMismatch, error.InvalidArgument)):
                    definition.infer(*node.args, **{**dict(node.attrs.items), key: value})


def test_sizes_of_an_open_rank_are_all_kept():
    kind = get_op_def("nn.max_pool_with_indices").attrs["pool_size"]
    assert [kind.of(v, "") for v in (2, [2], [2, 3], np.array([2, 3]))] == [2, (2,), (2, 3), (2, 3)]


def test_inputs_have_tvms_names_too():
    x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32"))
    for call in (relax.op.add(x1=x, x2=x), relax.op.nn.relu(data=x), relax.op.sort(x=x)):
        assert all(a is x for a in call.args)
    assert relax.op.image.resize2d(x, (4, 4), (0.0, 0.0, 1.0, 1.0), "NHWC").attrs["layout"] == "NHWC"


def test_unknown_attributes_are_refused():
    x = relax.Var("x", relax.tensor_type((2, 3), "float32"))
    refuses(error.InvalidArgument, "axes", make_call("nn.softmax"), x, axes=1)
    refuses(error.InvalidArgument, "unknown argument 'axes'", get_op_def("nn.softmax").infer, x, axes=1)


@pytest.mark.parametrize(
    "line",
    [
        "R.nn.conv2d(x, w, strides=[0, 1])",
        "R.nn.conv2d(x, w, padding=[1, 2, 3])",
        "R.nn.conv2d(x, w, groups=0)",
        "R.nn.conv2d(x, w, data_layout='NWHC')",
        "R.nn.max_pool2d(x, pool_size=[2, 2], strides=[-1, 1])",
        "R.nn.softmax(x, axis=4)",
        "R.sort(x, axis=9)",
        "R.cumsum(x, axis=-5)",
        "R.nn.max_pool2d(x, layout='NCHW', out_layout='NHWD')",
    ],
)
def test_text_is_refused_with_its_line(line):
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        y = {line}
        return y
"""
    assert "6" in str(refuses(error.WeftError, "", script.from_source, text)).split("-->")[1].split(":")[1]


def test_forms_are_what_tvm_keeps():
    x, w = (relax.Var(n, relax.tensor_type(s, "float32")) for n, s in (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3))))
    attrs = make_call("nn.conv2d")(x, w, strides=2, padding=[1, 2], dilation=np.int32(1), out_dtype=None).attrs
    assert (attrs.strides, attrs.padding, attrs.dilation, attrs.out_dtype) == ((2, 2), (1, 2, 1, 2), (1, 1), "")
    assert make_call("sum")(x, axis=1).attrs.axis == (1,)
    assert make_call("squeeze")(x, axis=0).attrs.axis == (0,)


def _function_of(name):
    """The function of topi that an operator is computed by, where it is one."""
    fn = get_op_def(name).lower.fn if get_op_def(name).lower is not None else None
    return fn if inspect.isfunction(fn) and fn.__module__.startswith("weft.topi") else None


@pytest.mark.parametrize("name", [n for n in list_ops() if _function_of(n)])
def test_topi_has_the_same_defaults(name):
    """A default stands in the declaration; a function of topi with another one would be another operator."""
    definition, parameters = get_op_def(name), inspect.signature(_function_of(name)).parameters
    for key in set(definition.attrs) & set(parameters):
        default = parameters[key].default
        if default is not inspect.Parameter.empty:
            kind = definition.attrs[key]
            same = kind.of(default, key) if default is not None or kind.optional else None
            assert same in (kind.default, None), (key, default, kind.default)


def test_attributes_follow_dimensions():
    """What attributes say of dimensions in one order, they say of the same dimensions in another."""
    kinds = {"one": axis(0), "some": axes(), "each": axes(ordered=True), "both": each_axis()}
    rng = np.random.default_rng(7)
    for _ in range(200):
        ndim = int(rng.integers(1, 6))
        wide = ndim + int(rng.integers(0, 2))
        places = tuple(int(p) for p in rng.permutation(wide)[:ndim])
        chosen = [int(a) for a in rng.permutation(ndim)[: rng.integers(0, ndim + 1)]]
        pairs = tuple(int(v) for v in rng.integers(0, 9, 2 * ndim))
        attrs = Attrs.of(one=int(rng.integers(-ndim, ndim)), some=chosen, each=chosen, both=pairs, other=3)
        new = in_places(kinds, attrs, places, wide)
        assert new.one == places[attrs.one] and new.other == 3
        assert new.some == tuple(sorted(places[a] for a in chosen)) and new.each == tuple(places[a] for a in chosen)
        for d in range(wide):
            old = places.index(d) if d in places else None
            assert new.both[2 * d : 2 * d + 2] == ((0, 0) if old is None else pairs[2 * old : 2 * old + 2])


def test_a_wrong_value_is_what_programs_for_tvm_catch_and_no_defect():
    x = relax.Var("x", TensorType((2, 3, 8), "float32"))
    caught = refuses(error.InternalError, "'pool_size' has a wrong value", relax.op.nn.max_pool1d, x, pool_size=(1, 2))
    assert isinstance(caught, ValueError)
    assert not error.is_defect(caught)
    assert "please report" not in str(caught)
