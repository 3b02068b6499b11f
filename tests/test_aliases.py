"""Both vocabularies name the same objects."""

import functools
import importlib.util
import inspect
import itertools
import random
import subprocess
import sys

import pytest

import weft
from tests.refusals import refuses
from weft import _aliases, environment


def modules_inside(name):
    """A module and the modules right inside it that an alias must also reach."""
    module = importlib.import_module(name)
    inside = [n for n, v in vars(module).items() if getattr(v, "__name__", None) == f"{name}.{n}"]
    return ["", *("." + n for n in inside)]


CASES = [(a, m, inside) for a, m in _aliases.MODULES.items() for inside in modules_inside(m)]


@pytest.mark.parametrize(("alias", "module", "inside"), CASES, ids=[a + i for a, _, i in CASES])
def test_import_of_an_alias(alias, module, inside):
    meant = importlib.import_module(module + inside)
    assert importlib.import_module(f"weft.{alias}{inside}") is meant
    assert sys.modules[f"weft.{alias}{inside}"] is meant
    assert meant.__name__ == module + inside


@pytest.mark.parametrize("alias", _aliases.MODULES)
def test_attribute_of_an_alias(alias):
    value = weft
    for part in alias.split("."):
        value = getattr(value, part)
    assert value is importlib.import_module(_aliases.MODULES[alias])


FRESH = """
import os, sys, {others}
for program in sys.argv[1:]:
    child = os.fork()
    if not child:
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""


ATTRIBUTES = """
import importlib
import weft
from weft import _absent

missed = []
for module, names in _absent.tvm_names().items():
    here = weft
    try:
        for part in module.split(".") if module != "." else ():
            here = getattr(here, part)
    except AttributeError:
        continue  # is imported by name in TVM, too
    for name in names:
        if not hasattr(here, name):
            try:
                importlib.import_module(f"weft.{module}.{name}".replace("..", "."))
            except ImportError:
                continue
            missed.append(f"{module}.{name}")
assert not missed, missed
"""
"""A program that says ``relay.loops.while_loop`` imports no more than ``relay``."""


def test_aliases_and_attributes_in_a_fresh_process():
    """Either form is all it takes, whatever was imported before: each alias comes early, late and after others.

    What others wrote is imported once, in the process whose copies import Weft.
    """
    programs = [ATTRIBUTES]
    runs = list(itertools.product(range(2), ("statement", "attribute")))
    for order, form in runs if environment.SWEEP.read() else runs[::3]:
        aliases = list(_aliases.MODULES)
        random.Random(order).shuffle(aliases)
        lines = ["import importlib, weft"]
        for alias in aliases:
            module = _aliases.MODULES[alias]
            if form == "statement":
                lines.append(f"import weft.{alias} as a, {module} as m; assert a is m, {alias!r}")
            else:
                lines.append(f"a = weft.{alias}; assert a is importlib.import_module({module!r}), {alias!r}")
        programs.append("\n".join(lines))
    others = ("llvmlite.binding", "numpy", "onnx", "rich.table", "torch._functorch.aot_autograd")
    heavy = [m for m in others if importlib.util.find_spec(m)]
    subprocess.run([sys.executable, "-c", FRESH.format(others=", ".join(heavy)), *programs], check=True)


def test_names_from_aliases():
    from weft.relax.frontend.onnx import from_onnx
    from weft.tirx import PrimFunc, transform

    assert from_onnx is weft.frontend.onnx.from_onnx
    assert PrimFunc is weft.tir.PrimFunc and transform is weft.tir.transform
    assert weft.nd.array is weft.runtime.array and weft.tirx is weft.tir


def test_names_that_are_no_alias():
    assert (
        _aliases.find("tir") is None and _aliases.find("ndx") is None and _aliases.find("tirx.stmt") == "weft.tir.stmt"
    )
    refuses(ModuleNotFoundError, "", importlib.import_module, "weft.tirx.nothing_of_that_name")
    refuses(AttributeError, "", getattr, weft, "nothing_of_that_name")


def test_names_that_load_later_are_there():
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] == "weft"]:
        own = vars(module).get("__getattr__")
        made = own.args[1] if isinstance(own, functools.partial) and len(own.args) > 1 else own
        for name in inspect.getclosurevars(made).nonlocals.get("later", ()) if inspect.isfunction(made) else ():
            assert getattr(module, name) is not None, f"{module.__name__}.{name}"
