"""Names of TVM that Weft lacks: the error says which release had them and what to use."""

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import weft
from tests.refusals import refuses
from tools import reference
from weft import _absent

NAMES = _absent.tvm_names()


@pytest.fixture(scope="module")
def absent() -> dict[str, list[str]]:
    """By module the names that Weft lacks."""
    found = {module: reference._states(module, names)[2] for module, names in NAMES.items()}
    return {module: names for module, names in found.items() if names}


def test_every_absent_name_says_its_release_and_why(absent: dict[str, list[str]]) -> None:
    for module, names in absent.items():
        for name in names:
            assert _absent.remark("absent", module, name), f"{module}.{name}: weft/_absent.toml does not say why"
        here = reference.module_of_tvm(module)
        if here is None:
            refuses(ModuleNotFoundError, "Apache TVM", importlib.import_module, f"weft.{module}")
        for name in names if isinstance(here, ModuleType) else []:  # a namespace of operators tells near names
            caught = refuses(AttributeError, r"Apache TVM 0\.\d+.* has it as tvm\.", getattr, here, name)
            assert NAMES[module][name].split(",")[0] in str(caught)


def test_every_remark_meets_a_name(absent: dict[str, list[str]]) -> None:
    """One that meets none speaks of a name that is here by now, or never was."""
    every, gone = ({f"{m}.{n}".lstrip(".") for m, names in of.items() for n in names} for of in (NAMES, absent))
    for table, names in (("absent", gone), ("differs", every - gone)):
        for pattern in _absent.remarks(table):
            assert any(_absent.fnmatchcase(name, pattern) for name in names), f"{table}: {pattern}"


def test_an_import_of_an_absent_name_says_so_too(absent):
    module = next(m for m in absent if m in ("relay.frontend", "relay"))
    name = absent[module][0]
    refuses(ImportError, f"cannot import name '{name}'.*Apache TVM", exec, f"from weft.{module} import {name}")
    for said in ("from weft.topi.nn import sparse", "import weft.topi.nn.sparse"):  # its names are not listed
        refuses(ImportError, r"Apache TVM 0\.8, 0\.9 and 0\.18 has it as tvm\.topi\.nn\.sparse", exec, said)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'weft\.topi\.nowhere'$"):
        importlib.import_module("weft.topi.nowhere")


def test_names_that_nobody_has():
    assert not hasattr(weft, "no_such")
    refuses(AttributeError, "^module 'weft' has no attribute 'no_such'$", getattr, weft, "no_such")
    refuses(ImportError, r"_ffi_api.* TVM's functions of C\+\+", exec, "from weft.runtime import _ffi_api")
    with pytest.raises(AttributeError, match="^module 'weft.tir.function' has no attribute '__all__'"):
        _ = importlib.import_module("weft.tir.function").__all__


def test_nothing_of_it_is_read_by_programs_that_lack_nothing():
    program = (
        "import weft.tir as t, weft._absent as a; assert not hasattr(t, 'x'); print(a.tvm_names.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize(
    "name", ["contrib.nnpack", "contrib.cutlass", "relay.op.contrib.ethosn", "driver.tvmc.micro", "contrib.msc"]
)
def test_modules_say_why_in_both_forms_of_an_import(name):
    parent, _, last = name.rpartition(".")
    for statement in (f"import weft.{name}", f"from weft.{parent} import {last}"):
        refuses(ImportError, r"Apache TVM.*\(docs/reference/tvm.md\)", exec, statement)
    refuses(ImportError, r"No module named 'weft\.support\.nowhere'$", importlib.import_module, "weft.contrib.nowhere")
