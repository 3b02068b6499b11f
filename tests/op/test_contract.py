"""The contract of every operator of the registry."""

import inspect

import numpy as np
import pytest

import weft
from tests.op import (
    cases,  # noqa: F401 - registers the cases
    contract,
)
from tests.refusals import refuses
from tests.relax_models import model
from weft import error, ir, relax, runtime
from weft.op import get_op_def, list_ops, make_call

WITHOUT_LOWER = {"nn.lstm", "nn.gru", "nn.rnn", "vision.all_class_non_max_suppression"}  # decomposed before


def test_every_operator_is_complete() -> None:
    for name in list_ops():
        definition = get_op_def(name)
        assert definition.reference is not None, name
        assert definition.infer is not None, name
        assert definition.lower is not None or definition.decompose is not None, name
        assert definition.doc.endswith("."), name
        assert definition.lower is not None or name in WITHOUT_LOWER, name


def test_every_operator_has_cases() -> None:
    assert sorted(set(list_ops()) - set(contract.CASES)) == []
    assert sorted(set(contract.CASES) - set(list_ops())) == []


def drawn(name: str, index: int) -> list[tuple[dict[str, int], contract.Case]]:
    """The sizes that a case takes; a case that takes none is none."""
    made = [
        (sizes, contract.CASES[name][index](contract.Sizes(sizes, f"{name}{index}{sizes}"))) for sizes in contract.SIZES
    ]
    found = [(sizes, case) for sizes, case in made if case is not None]
    assert found, f"case {index} of {name} takes none of the sizes; nothing would be compared"
    return found


@pytest.mark.parametrize("name", list_ops())
def test_enough_is_compared(name: str) -> None:
    """Three sizes an operator, two results of different values among them that are not empty."""
    runs = [case for index in range(len(contract.CASES[name])) for _, case in drawn(name, index)]
    results = [
        np.concatenate([r.reshape(-1).astype("complex64") for r in contract.expected_of(name, case)]) for case in runs
    ]
    assert len(runs) >= 3, f"{name}: {len(runs)} sizes; add cases to tests/op/cases"
    full = {r.tobytes() for r in results if r.size and not np.isnan(r).all()}
    assert len(full) >= 2, f"{name}: all results that are not empty are the same; add cases to tests/op/cases"


def test_a_case_that_takes_no_sizes_fails(monkeypatch) -> None:
    monkeypatch.setitem(contract.CASES, "add", [lambda s: None])
    for check in (test_enough_is_compared, test_unknown_types_propagate, test_wrong_kinds_of_arguments_are_errors):
        refuses(AssertionError, "case 0 of add takes none", check, "add")
    refuses(AssertionError, "case 0 of add takes none", test_values_and_types, "add", 0)


@pytest.fixture
def _optimised_second(request: pytest.FixtureRequest) -> None:
    """Of each operator, LLVM's optimiser has the second case."""
    if request.node.callspec.params["index"] == 1:
        request.getfixturevalue("optimised")


@pytest.mark.usefixtures("_optimised_second")
@pytest.mark.share(32, "name")
@pytest.mark.parametrize(("name", "index"), [c for c in contract.with_cases() if c[0] not in WITHOUT_LOWER])
def test_values_and_types(name: str, index: int) -> None:
    """A scheduled kernel of symbolic dimensions on all sizes."""
    program, kernels = None, {}  # a kernel for all sizes that a case does not look at
    for sizes, case in drawn(name, index):
        if case.symbolic:
            program = program or contract.compile_call(name, case, symbolic=True, scheduled=True)
        constant = program if case.symbolic else contract.compile_call(name, case, False, False, kernels)
        contract.run(name, case, constant, sizes)


@pytest.mark.share(32, "scheduled")
@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("name", [n for n in list_ops() if n not in WITHOUT_LOWER])
def test_constant_dimensions(name: str, scheduled: bool) -> None:
    """A kernel of constant dimensions, as written or scheduled."""
    sizes, case = drawn(name, 0)[:3][-scheduled]
    contract.run(name, case, contract.compile_call(name, case, False, scheduled), sizes)


@pytest.mark.share(32, "name")
@pytest.mark.parametrize(("name", "index"), [c for c in contract.with_cases() if get_op_def(c[0]).decompose])
def test_decomposed_operators(name: str, index: int) -> None:
    """Operators that become others are compiled as a whole program."""
    given = [case for _, case in drawn(name, index)]
    program = relax_program(name, given[0])
    for case in given:
        expected = contract.expected_of(name, case)
        found = program(*[contract.to_numpy(v) for v in case.inputs])
        for f, e in zip(found if len(expected) > 1 else [found], expected, strict=True):
            contract.compare(f.numpy(), e, case.rtol or 1e-4, case.atol)


def relax_program(name: str, case):
    node, _ = contract.make(name, case, symbolic=True)
    params = [a for a in node.args if isinstance(a, ir.ExprVar)]
    mod = model(lambda *_: node, *params)
    return runtime.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())["main"]


def opened(expr, ndim: bool, dtype: bool):
    """The same argument with a shape (and rank, and data type) that is not known."""
    if isinstance(expr, ir.ExprVar):
        ty = expr.ty
        return ir.ExprVar(expr.name_hint, ir.TensorType(None, ty.dtype if dtype else "", ty.ndim if ndim else -1))
    if isinstance(expr, ir.Tuple):
        fields = tuple(opened(f, ndim, dtype) for f in expr.fields)
        return ir.Tuple(fields, ty=ir.TupleType(tuple(f.ty for f in fields)))
    if not ndim and isinstance(getattr(expr, "ty", None), ir.ShapeType):
        return ir.ExprVar("shape", ir.ShapeType(None, len(expr.ty.values)))
    return expr


@pytest.mark.parametrize("name", list_ops())
def test_unknown_types_propagate(name: str) -> None:
    """Where a shape, rank or data type is not known, inference says what it can, or refuses with a clear error."""
    _, case = drawn(name, 0)[0]
    node, _ = contract.make(name, case, symbolic=False)
    attrs = dict(node.attrs.items)
    exact = contract.tensor_types(get_op_def(name).infer(*node.args, **attrs))
    for ndim, dtype in ((True, True), (False, True), (False, False)):
        try:
            found = contract.tensor_types(get_op_def(name).infer(*[opened(a, ndim, dtype) for a in node.args], **attrs))
        except error.WeftError:
            assert not ndim, f"{name} refuses a tensor of known rank"
            continue
        assert len(found) == len(exact)
        for f, e in zip(found, exact, strict=True):
            assert isinstance(f, ir.TensorType), f"{name}: {f}"
            assert f.ndim in (-1, e.ndim), f"{name}: {f.ndim} dimensions instead of {e.ndim}"
            assert f.dtype in ("", e.dtype), f"{name}: {f.dtype} instead of {e.dtype}"
            assert f.shape is None or len(f.shape) == e.ndim


NARROW = {"image.resize", "image.resize3d", "image.resize_placed"}  # the nearest, found as PyTorch and ONNX find it
NARROW |= {"nn.matmul_compressed", "nn.matmul_nbits_packed"}  # weights of float32, rows that become bytes
NARROW |= {"reinterpret", "tree_scores"}  # which compare sizes


@pytest.mark.parametrize("name", sorted({*list_ops()} - WITHOUT_LOWER - NARROW))
def test_numbers_of_64_bits_stay_so(name: str) -> None:
    """A kernel from float64 to float64 has nothing narrower inside, which would cost half the digits."""
    for index in range(len(contract.CASES[name])):
        _, case = drawn(name, index)[0]
        for given in (x for v in case.inputs for x in (v if isinstance(v, tuple) else (v,))):
            array = getattr(given, "array", given)
            if isinstance(array, contract.Array) and array.value.dtype == np.float32:
                array.value = array.value.astype(np.float64)
        func, ty, *_ = contract.prim_func(name, case, symbolic=False)
        if {t.dtype for t in contract.tensor_types(ty)} == {"float64"}:
            assert not [n for n in ir.walk(func) if str(getattr(n, "dtype", "")).startswith("float32")]


@pytest.mark.parametrize("name", list_ops())
def test_wrong_kinds_of_arguments_are_errors(name: str) -> None:
    """A shape where a tensor belongs, or nothing at all, is an error that names the operator."""
    _, case = drawn(name, 0)[0]
    node, _ = contract.make(name, case, symbolic=False)
    for i, (arg, spec) in enumerate(zip(node.args, get_op_def(name).inputs, strict=False)):
        if spec.kind != "tensor":
            continue
        args = list(node.args)
        args[i] = ir.shape_expr((2, 3))
        e = refuses(error.WeftError, "", get_op_def(name).infer, *args, **dict(node.attrs.items))
        assert name.rsplit(".", 1)[-1] in str(e), str(e)
        assert arg is not None


def test_numbers_take_the_type_of_the_tensor_beside_them() -> None:
    x = ir.ExprVar("x", ir.TensorType((), "float16", 0))
    node = make_call("add")(x, 2)
    assert node.args[1].ty.dtype == "float16"
    assert np.asarray(node.args[1].data.numpy()) == 2


def test_constructors_say_what_they_take() -> None:
    assert str(inspect.signature(relax.op.nn.softmax)) == "(data, axis=-1)"
    for name in list_ops():
        parameters = inspect.signature(make_call(name)).parameters
        definition = get_op_def(name)
        assert list(parameters) == [*(i.name for i in definition.inputs), *definition.attrs]
