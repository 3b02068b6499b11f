"""What pages tell a reader to type is there: commands and their options, targets of make, modules, names, files."""

import ast
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import weft
from tests.test_docs import RUN
from weft.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")), *ROOT.glob("docs/gallery/*.md")]
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.S | re.M)
COMMAND = re.compile(r"(?:^ {4}|`|python -m )weft ([a-z][^`#)\n]*)", re.M)
MADE = {t for line in (ROOT / "Makefile").read_text().splitlines() for t in re.findall(r"^[\w%-]+(?=:)", line)}


def named_on(pattern):
    return [(page.name, found) for page in PAGES for found in re.findall(pattern, page.read_text())]


def commands():
    return {name for name in app if not name.startswith("-")}


def test_commands_and_options():
    lines = [(page, text.split()[0], re.findall(r" (--?[a-z][\w-]*)", text)) for page, text in named_on(COMMAND)]
    assert len(lines) > 40
    for page, command, options in lines:
        assert command in commands(), f"{page}: weft {command}"
        arguments = app[command].assemble_argument_collection() if app[command].default_command else ()
        unknown = set(options) - {n for a in arguments for n in a.names}
        assert not unknown, f"{page}: weft {command} has no {unknown}"
    assert not commands() - {"serve-rpc"} - {line[1] for line in lines}, "commands that no page shows"


def test_targets_of_make():
    found = named_on(r"(?:`|^ {4})make ([a-z-]+)")
    assert len(found) > 20
    wrong = [f"{page}: make {t}" for page, t in found if t not in MADE and f"{t.split('-')[0]}-%" not in MADE]
    assert not wrong, wrong


def test_modules_and_files():
    for page, module in named_on(r"python -m ((?:benchmarks|tests|tools|examples|weft)(?:\.\w+)*)"):
        assert importlib.util.find_spec(module), f"{page}: python -m {module}"
    paths = named_on(r"`((?:weft|tests|tools|native|benchmarks|examples)/[\w/.-]+)`")
    assert len(paths) > 100
    wrong = [f"{page}: {p}" for page, p in paths if not (ROOT / p).exists() and not list(ROOT.glob(f"{p}*"))]
    assert not wrong, wrong


def bound(tree):
    """The modules and classes that names of a block mean: what it imports, and what pages do not repeat."""
    names = {"weft": weft, "tvm": weft}
    for name in ("relax", "relay", "rpc", "runtime", "te", "tir", "topi"):
        names[name] = importlib.import_module(f"weft.{name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in {"weft", "tvm"}:
            for a in node.names:
                module = importlib.import_module(node.module)
                full = f"{node.module}.{a.name}"
                assert hasattr(module, a.name) or importlib.util.find_spec(full), full
                names[a.asname or a.name] = getattr(module, a.name, None) or importlib.import_module(full)
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return {n: v for n, v in names.items() if n not in stored}


def meant(node, known, page):
    """What a dotted name of a block is, as far as modules and classes tell; a name that is not there fails."""
    parts = ast.unparse(node).split(".")
    value = known.get(parts[0]) if all(p.isidentifier() for p in parts) else None
    for at, part in enumerate(parts[1:], 2):
        if not isinstance(value, type(weft) | type):
            return None
        assert hasattr(value, part), f"{page.name}: {'.'.join(parts[:at])}"
        value = getattr(value, part)
    return value


ONLY_READ = [p for p in PAGES if p.stem not in RUN and PYTHON.search(p.read_text())]


@pytest.mark.parametrize("page", ONLY_READ, ids=lambda p: p.stem)
def test_names_and_arguments_in_code(page):
    for block in PYTHON.findall(page.read_text()):
        tree = ast.parse(block)
        known = bound(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                meant(node, known, page)
            elif isinstance(node, ast.Call) and callable(function := meant(node.func, known, page)):
                given = [a for a in node.args if not isinstance(a, ast.Starred)]
                inspect.signature(function).bind_partial(*given, **{k.arg: 0 for k in node.keywords if k.arg})


# What the lines of README.md begin with, block by block; readers of other front ends than PyTorch need their packages.
MODEL = """
import numpy as np
import onnx
from onnx import TensorProto, helper
import weft
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])
graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [info("x")], [info("y")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
array = np.ones((3, 4), "float32")
x = weft.runtime.tensor(array)
"""
BEFORE = [
    MODEL,
    MODEL,
    "import torch, weft\nmodule, x = torch.nn.Linear(4, 3).eval(), torch.ones(2, 4)\n",
    """
import numpy as np
import weft
from weft import te
from weft.relax.frontend import nn
n = te.var("n")
class Model(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(4, 3)
    def forward(self, x):
        return self.layer(x)
model, spec = Model(), {"forward": {"x": nn.spec.Tensor(("n", 4), "float32")}}
""",
    """
import numpy as np
import weft
from weft import relay
tree = np.ones(3, "float32")
with open("tree_lstm.rly", "w") as f:
    f.write('#[version = "0.0.5"]\\ndef @main(%x: Tensor[(3), float32]) { %x + %x }')
""",
]
AFTER = [
    "np.testing.assert_allclose(outputs[0].numpy(), np.exp(array), rtol=1e-6)",
    "np.testing.assert_allclose(vm['main'](x).numpy(), np.exp(array), rtol=1e-6)\nassert (y.numpy() > 2.7).all()",
    "with torch.no_grad():\n    torch.testing.assert_close(fast(x), module(x))\nassert mod['main'].ret_ty",
    "a = weft.runtime.tensor(np.float32([1, 2]))\nc = weft.runtime.empty((2,))\nadd(a, a, c)\n"
    "assert c.numpy().tolist() == [2, 4] and len(params) == 2 and mod['forward'].params",
    "assert y.numpy().tolist() == [2, 2, 2]",
]


@pytest.mark.parametrize("at", range(len(BEFORE)))
def test_blocks_of_the_readme_run(at, tmp_path, monkeypatch):
    blocks = PYTHON.findall((ROOT / "README.md").read_text())
    assert len(blocks) == len(BEFORE)
    code = "".join(line for line in blocks[at].splitlines(True) if "jax" not in line and "tflite" not in line)
    monkeypatch.chdir(tmp_path)
    exec(BEFORE[at] + code + AFTER[at], {"__name__": "readme"})
