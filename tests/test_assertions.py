"""Every test can fail: it asserts, expects an error or a warning, or calls what does.

Names are followed to where they are defined: in the test itself, its module, or the module of ``tests`` it is imported
from. Methods of objects are not followed; a call of ``vm.check()`` proves nothing here. That a Python program in
another process ends well proves nothing, either, unless its text asserts something.
"""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ASSERTING = {"raises", "warns", "fail", "check_grad"}  # the last compares with differences, and raises
ENDS = ("run", "ended")  # of tests.clock: they wait for a program


class Module:
    """The functions of a file, and where the names that it imports come from."""

    def __init__(self, name, tree):
        self.name = name
        nodes = list(ast.walk(tree))
        self.functions = {n.name: n for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        self.imports = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                self.imports |= {a.asname or a.name: (node.module or "", a.name) for a in node.names}
            elif isinstance(node, ast.Import):
                self.imports |= {a.asname: (a.name, "") for a in node.names if a.asname}
        assigned = (n for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name))
        self.values = {n.targets[0].id: n.value for n in assigned}


def modules(root=TESTS):
    found = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(("tests", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = Module(name, ast.parse(path.read_text()))
    for name, module in found.items():  # fixtures of the folders around
        folders = name.split(".")
        for n in range(len(folders) - 1, 0, -1):
            conftest = found.get(".".join((*folders[:n], "conftest")))
            for fixture in conftest.functions if conftest is not None else ():
                module.imports.setdefault(fixture, (conftest.name, fixture))
    return found


NOTHING, CHILD, VALUE = range(3)  # what a piece of code checks: nothing, that a Python program ends well, a value


def asserts(node, module, known, seen):
    """What running `node` may fail a test by."""
    found = NOTHING
    nodes = list(ast.walk(node))
    child = any(isinstance(n, ast.Attribute) and n.attr in ("executable", "Process") for n in nodes)
    for n in nodes:
        if found == VALUE:
            break
        if isinstance(n, ast.Assert):
            found = max(found, CHILD if child and tells_the_end_only(n.test) else VALUE)
        elif isinstance(n, ast.Call) and any(k.arg == "check" and is_true(k.value) for k in n.keywords):
            found = max(found, CHILD if child else VALUE)
        elif isinstance(n, ast.Call):
            checks = names_assertion(n.func, module, known, seen)
            found = max(found, min(checks, CHILD) if child and waits(n.func, module) else checks)
        elif isinstance(n, ast.Raise) and n.exc is not None:
            found = max(found, VALUE * ("AssertionError" in ast.dump(n.exc) or raises_own(n.exc, module, known)))
    return found


def waits(func, module):
    """Whether what is called checks that a program ends, and not how: two functions of ``tests.clock``."""
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return func.attr in ENDS and module.imports.get(func.value.id) == ("tests", "clock")
    return isinstance(func, ast.Name) and module.imports.get(func.id) in [("tests.clock", name) for name in ENDS]


def tells_the_end_only(condition):
    left = condition.left if isinstance(condition, ast.Compare) else None
    return isinstance(left, ast.Attribute) and left.attr in ("returncode", "exitcode")


def raises_own(exc, module, known):
    """Whether an exception is a class of the suite, such as ``Disagreement``."""
    name = exc.func.id if isinstance(exc, ast.Call) and isinstance(exc.func, ast.Name) else ""
    origin, inner = module.imports.get(name, (module.name, name))
    return origin in known and isinstance(known[origin].functions.get(inner), ast.ClassDef)


def program_asserts(test, module):
    """Whether a text that the test has, or a constant of its module that it names, asserts something."""
    named = [module.values[n.id] for n in ast.walk(test) if isinstance(n, ast.Name) and n.id in module.values]
    texts = [n.value for part in (test, *named) for n in ast.walk(part) if isinstance(n, ast.Constant)]
    return any(isinstance(t, str) and re.search(r"\bassert|raises\(|^pytest$", t) for t in texts)


def is_true(value):
    return isinstance(value, ast.Constant) and value.value is True


def names_assertion(func, module, known, seen):
    """What a called function checks."""
    if isinstance(func, ast.Call):
        return names_assertion(func.func, module, known, seen)
    if isinstance(func, ast.Attribute):
        if func.attr.startswith("assert_") or func.attr in ASSERTING:
            return VALUE
        owner = func.value.id if isinstance(func.value, ast.Name) else ""
        origin, inner = module.imports.get(owner, ("", ""))
        return follow(".".join(filter(None, (origin, inner))), func.attr, known, seen)
    if not isinstance(func, ast.Name):
        return NOTHING
    if func.id.startswith("assert_") or func.id in ASSERTING:
        return VALUE
    if func.id in module.functions or func.id in module.values:
        return follow(module.name, func.id, known, seen)
    return follow(*module.imports.get(func.id, ("", "")), known, seen)


def follow(name, function, known, seen):
    """What a function of a module of the suite does; packages re-export."""
    if name.startswith("weft.testing") and function:
        return VALUE * function.startswith(("assert_", "check"))
    module = known.get(name)
    if module is None:
        return NOTHING
    if (name, function) not in seen:
        seen[name, function] = NOTHING  # for those that call themselves
        seen[name, function] = look(module, function, known, seen)
    return seen[name, function]


def look(module, function, known, seen):
    node = module.functions.get(function) or module.values.get(function)
    if node is None:
        origin, inner = module.imports.get(function, ("", ""))
        return follow(origin, inner, known, seen)
    return asserts(node, module, known, seen)


def toothless(known):
    seen = {}
    for name, module in known.items():
        if name.rpartition(".")[2].startswith("test_"):
            for function, node in module.functions.items():
                found = VALUE if not function.startswith("test_") else asserts(node, module, known, seen)
                if found == NOTHING or (found == CHILD and not program_asserts(node, module)):
                    yield f"{name}::{function} (line {node.lineno})"


def test_every_test_asserts():
    known = modules()
    assert len(known) > 300
    found = list(toothless(known))
    assert not found, "these tests see only that nothing is raised; compare something:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("body", "finds"),
    [
        ("run(1)", True),
        ("x.check()", True),
        ("len('x')", True),
        ("assert run(1)", False),
        ("check(1)", False),
        ("deep(1)", False),
        ("np.testing.assert_allclose(1, 1)", False),
        ("with raises(ValueError): run(1)", False),
        ("for x in (): check(x)", False),
        ("subprocess.run(['cc'], check=True)", False),
        ("subprocess.run(['cc'], check=False)", True),
        ("raise Wrong(1)", False),
        ("raise ValueError(1)", True),
        ("subprocess.run([sys.executable, '-c', 'x = 1'], check=True)", True),
        ("child('x = 1')", True),
        ("subprocess.run([sys.executable, '-c', 'assert x'], check=True)", False),
        ("child('assert x')", False),
        ("assert child('x = 1') == 3", False),
        ("waited('x = 1')", True),
        ("waited('assert x')", False),
    ],
)
def test_the_search_itself(body, finds):
    helpers = "def run(x): return x\ndef check(x): assert x\ndef deep(x): return check(x)\n"
    helpers += "class Wrong(AssertionError): pass\n"
    helpers += "def child(x):\n    assert subprocess.run([sys.executable, '-c', x]).returncode == 0\n"
    helpers += "from tests import clock\ndef waited(x):\n    done = clock.run([sys.executable, '-c', x])\n"
    helpers += "    assert done.returncode == 0\n"
    module = Module("tests.test_sample", ast.parse(f"{helpers}def test_it():\n    {body}\n"))
    clock = Module("tests.clock", ast.parse((TESTS / "clock.py").read_text()))
    assert bool(list(toothless({"tests.test_sample": module, "tests.clock": clock}))) == finds
