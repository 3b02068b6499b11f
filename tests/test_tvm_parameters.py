"""Public functions take the parameters that Apache TVM's releases have: each by its name, the newest's in order."""

import importlib
import inspect
from inspect import Parameter
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import _absent, _aliases, ir, relax, tir
from weft.op.registry import OTHER_NAMES

ROWS = [line.split() for line in (Path(__file__).parent / "tvm_parameters.txt").read_text().splitlines()]
OPTIONS = {
    "*.script": "the printer's",
    "*compile": "relax.build's",
    "*RPCRunner": "a local runner's",
    "*XGBModel": "boosting's, accepted",
    "*.time_evaluator": "Module.time_evaluator's",
    "*VirtualMachineProfiler.profile": "the function's arguments",
    "meta_schedule.*relay*": "PassContext's, and relay.build's",
    "*meta_schedule.*tune_*": "tune_tasks's",
    "*meta_schedule.space_generator.*": "SpaceGenerator's",
    "relay.op.nn.contrib_conv2d_nchwc": "conv2d's",
    "runtime.Executable.*": "accepted, or Module.export_library's",
    "runtime.Module.export_library": "the linker's",
    "target.cuda": "Target's",
    "topi.nn.*": "layouts of tuners, accepted",
}
"""Where ``**`` takes options that are named elsewhere; what others take is asked by name."""
OPEN: set[str] = set()
NEWEST = {(module, path): parameters for module, _, path, *parameters in ROWS}


def found(module, path):
    """The class around a callable, or None, and the callable; None where Weft has no such name."""
    try:
        owner, here = None, importlib.import_module(_aliases.find(module) or f"weft.{module}".rstrip("."))
    except ImportError:
        return None, None
    for part in path.split("."):
        owner, here = here if inspect.isclass(here) else None, getattr(here, part, None)
    return owner, here


def signature(owner, value, name=""):
    """What a callable takes; None where Python cannot tell."""
    call = getattr(type(value), "__call__") if inspect.isclass(value) else None  # noqa: B004, B009
    if inspect.isfunction(call) and not hasattr(value, "__other_names__"):  # a metaclass that arranges what is given
        return list(inspect.signature(call).parameters.values())[1:]
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    method = inspect.isfunction(value) and owner is not None
    bound = method and not isinstance(inspect.getattr_static(owner, name), staticmethod)
    given = [p.name for p in parameters[:2]]
    made_without_program = name[:1].isupper() and ".transform" in value.__module__ and "mod" in given  # of a pass
    return parameters[given.index("mod") + 1 if made_without_program else bool(bound) :]


def other_names(value):
    """TVM's names of parameters that have another one here."""
    names = {**getattr(value, "__other_names__", {}), **getattr(value, "other_names", {})}
    if inspect.isclass(value):
        names |= getattr(value.__init__, "other_names", {}) | getattr(value.__new__, "other_names", {})
    return OTHER_NAMES | names if hasattr(value, "__signature__") and not inspect.isclass(value) else names


def differences(module, path, asked):
    """What a program that is written for this release could not give."""
    owner, value = found(module, path)
    parameters = signature(owner, value, path.rpartition(".")[2]) if callable(value) else None
    if parameters is None:
        return []
    kinds = {p.name: p.kind for p in parameters}
    by_name = {
        name for name, kind in kinds.items() if kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    others = other_names(value)
    here = [n if n in by_name else others.get(n, n) for n in asked]
    wrong = [f"no {n}" for n, own in zip(asked, here, strict=True) if n != "*" and own not in by_name]
    name = f"{module}.{path}".lstrip(".")
    if wrong and Parameter.VAR_KEYWORD in kinds.values() and any(_absent.meets(p, [name]) for p in OPTIONS):
        wrong = []
        OPEN.add(name)
    if NEWEST[module, path] == asked:
        places = [n for n, k in kinds.items() if k <= Parameter.POSITIONAL_OR_KEYWORD and n != "span"]
        places += getattr(value, "__further__", ())
        in_order = here[: here.index("*")] if "*" in here else here
        if Parameter.VAR_POSITIONAL in kinds.values():
            in_order = in_order[: len(places)]
        for i, own in enumerate(in_order):
            if i >= len(places) or places[i] != own:
                wrong.append(f"{own} is not number {i + 1}")
    return wrong


ALL = {(m, path): d for m, releases, path, *asked in ROWS if (d := differences(m, path, asked))}


def test_parameters_are_tvms_or_the_list_says_how_they_differ():
    new = {f"{m}.{p}".lstrip("."): d for (m, p), d in ALL.items() if not _absent.remark("parameters", m, p)}
    assert not new, "\n".join(f"{name}: {', '.join(d)}" for name, d in new.items())


def test_the_list_of_options_is_not_old():
    assert not [pattern for pattern in OPTIONS if not _absent.meets(pattern, OPEN)]


def test_the_list_of_differing_parameters_is_not_old():
    differing = {f"{m}.{p}".lstrip(".") for m, p in ALL}
    old = [pattern for pattern in _absent.remarks("parameters") if not _absent.meets(pattern, differing)]
    assert not old


def lacking():
    """The methods that a class of TVM's has in some release, and the one that is here has not."""
    for module, _, path, *_ in ROWS:
        owner, value = found(module, path) if "." in path else (None, None)
        if inspect.isclass(owner) and value is None:
            yield f"{module}.{path}".lstrip("."), _absent.remark("methods", module, path)


def test_methods_are_here_or_the_list_says_why_not():
    assert not [name for name, why in lacking() if not why]
    absent = {name for name, _ in lacking()}
    assert not [pattern for pattern in _absent.remarks("methods") if not _absent.meets(pattern, absent)]


@pytest.mark.parametrize("name", ["no_such", "lhs"])
def test_a_difference_would_be_found(name):
    assert differences("tir", "exp", [name]) == [f"no {name}"]


def test_what_is_given_by_tvms_names_arrives():
    ty = relax.TensorType((2,), "float32")
    x = tir.Var("x", "float32")
    assert relax.Var(name="a", struct_info=ty).ty is ty and relax.DataflowVar("b", struct_info=ty).ty is ty
    call = relax.Call(relax.Var("f"), [], sinfo_args=[ty])
    assert call.sinfo_args is call.ty_args and relax.Function([], call, ret_struct_info=ty).ret_struct_info is ty
    assert relax.Call(relax.ExternFunc("f"), [], sinfo_args=[ty]).ty_args == (ty,)
    assert relax.Constant(weft.runtime.tensor(np.zeros(2, "float32")), ty).ty is ty
    assert ir.FuncType(arg_types=[ty], ret_type=ty).ret is ty
    assert ir.Span(source_name="f", line=3) == ir.Span("f", 3)
    ir.assert_structural_equal(tir.atan2(x1=x, x2=x), tir.atan2(x, x))
    ir.assert_structural_equal(
        tir.q_multiply_shift(tir.Var("n"), y=3, q=31, s=1), tir.q_multiply_shift(tir.Var("n"), 3, 31, 1), True
    )
    layouts = {"shape": "m8n8k4", "A_layout": "row", "B_layout": "col", "dtype": "float32"}
    rest = dict.fromkeys(("multiplicand_a", "a_index", "multiplicand_b", "b_index", "accumulator", "c_index"), 0)
    types = {"A_dtype": "fp16", "B_dtype": "fp16", "C_dtype": "fp32"}
    assert len(tir.ptx_mma(**layouts, **types, **rest, saturate=False).args) == 13
    swapped = relax.BlockBuilder().normalize(
        relax.op.layout_transform(relax.Var("m", relax.TensorType((2, 3), "int8")), lambda i, j: (j, i))
    )
    assert [int(d) for d in swapped.ty.shape] == [3, 2]


def test_a_program_is_given_by_any_of_tvms_names():
    made = weft.script.from_source(input_func="@X.prim_func\ndef f(n: X.int32):\n    X.evaluate(n)", tir_prefix="X")
    mod = weft.IRModule({"f": made})
    assert weft.script.ir_module(mod=mod, s_tir=True) is weft.script.ir_module(input_module=mod) is mod
    refuses(TypeError, "", weft.script.from_source, "", prefix="X")


TWICE = [
    lambda ty: relax.Var("a", struct_info=ty, ty=ty),
    lambda ty: relax.Var("a", ty, None, ty),
    lambda ty: relax.Constant(weft.runtime.tensor(np.zeros(2)), ty, ty=ty),
    lambda ty: tir.exp(1.0, x=1.0),
    lambda ty: tir.atan2(x2=1.0),
    lambda ty: tir.exp(y=1.0),
    lambda ty: weft.cpu(0, dev_id=1),
]


@pytest.mark.parametrize("call", TWICE)
def test_what_has_no_place_or_two_is_refused(call):
    refuses(TypeError, "", call, relax.TensorType((2,), "float32"))
