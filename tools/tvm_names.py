"""Write ``weft/_tvm_names.txt`` and ``tests/tvm_parameters.txt``: Apache TVM's public names and their parameters.

``python tools/tvm_names.py CLONE`` reads a git directory of apache/tvm and runs nothing of it: the names are those that
a module's own statements bind, or its ``__all__``; what a module that is no package imports for itself is not public.
Such a module lists its functions and classes, less those that the package around it passes on. Names that TVM makes
while it runs (its FFI's tables) are not seen. Parameters are those of functions, of classes and of their own methods,
release by release, less ``span`` and those that begin with an underscore.
"""

import ast
import io
import subprocess
import sys
import tarfile
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNLISTED = "?"
RELEASES = ("0.8", "0.9", "0.18", "0.26")
# Microcontrollers, vendors' boards and their schedules, insides of importers and of printers, and TVM's second
# spellings of one surface (``script.parser``, ``script.ir_builder``, which ``script.tir``, ``script.relax`` pass on).
LEFT_OUT = """
micro* backend* libinfo generic utils* *.legacy* exec.* driver.tvmc*
contrib.*.* contrib.hexagon contrib.ethosu contrib.micro contrib.target contrib.cutlass
topi.x86* topi.arm_cpu* topi.mali* topi.bifrost* topi.intel* topi.rocm* topi.hexagon* topi.adreno* topi.gpu* topi.hls*
topi.cuda* topi.generic* topi.*.*
relay.frontend.* relay.op.contrib* relay.op.strategy* relay.op.*.* relay.backend.* relay.quantize.* relay.std*
relay.qnn.op.* relay.transform.fake_quantization_to_integer relay.testing.*
relax.backend.*.* relax.frontend.*.* relax.script* relax.testing.ast_printer
script.parser* script.ir_builder* script.printer* script.tir.* script.context_maintainer script.registry
tirx.operator* tirx.tile* tirx.script* tirx.layout* tir.tensor_intrin* s_tir.tensor_intrin* s_tir.dlight.*
meta_schedule.testing* meta_schedule.*.* s_tir.meta_schedule.*.* auto_scheduler.* autotvm.*.* te.hybrid.* testing.*
""".split()


class Release:
    """The Python modules of one release and the names that each binds."""

    def __init__(self, clone: str, tag: str) -> None:
        made = subprocess.run(
            ["git", "-C", clone, "archive", f"refs/tags/{tag}", "python/tvm"], capture_output=True, check=True
        )
        self.sources: dict[str, str] = {}
        self.packages: set[str] = set()
        with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
            for member in archive.getmembers():
                path = Path(member.name).relative_to("python")
                if path.suffix != ".py" or not (file := archive.extractfile(member)):
                    continue
                package = path.stem == "__init__"
                name = ".".join((path.parent if package else path.with_suffix("")).parts)
                self.sources[name] = file.read().decode()
                if package:
                    self.packages.add(name)
        self.bound: dict[str, dict[str, bool]] = {}
        self.declared: dict[str, list[str]] = {}

    def public(self, module: str) -> list[str]:
        """The names that ``from module import *`` gives."""
        names = self._names(module)
        return self.declared.get(module) or [name for name in names if not name.startswith("_")]

    def own(self, module: str) -> list[str]:
        """The names that a reader finds in a module: a package's public ones, what another defines itself."""
        if module in self.packages:
            return [name for name in self.public(module) if not name.startswith("_")]
        around = set(self.public(module.rpartition(".")[0]))
        defined = (name for name, here in self._names(module).items() if here)
        return [name for name in defined if name not in around and not name.startswith("_")]

    def parameters(self, module: str, name: str) -> dict[str, list[str]]:
        """What a function takes; of a class, ``name`` for what makes one, ``name.method`` for each of its methods."""
        node = self._definition(module, name, set())
        if isinstance(node, ast.FunctionDef):
            return {name: _parameters(node, 0)}
        if not isinstance(node, ast.ClassDef):
            return {}
        methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not _decorated(m, "property", "overload")]
        return {
            f"{name}.{m.name}".removesuffix(".__init__"): _parameters(m, 1 - _decorated(m, "staticmethod"))
            for m in methods
            if m.name == "__init__" or not m.name.startswith(("_", "visit_"))
        }

    def _definition(self, module: str, name: str, seen: set[str]) -> ast.stmt | None:
        """The function or class that a name of a module is bound to, here or where it is imported from."""
        if module in seen:
            return None
        seen.add(module)
        body, found = [*ast.parse(self.sources.get(module, "")).body], None
        for node in body:
            match node:
                case ast.FunctionDef() | ast.ClassDef() if node.name == name and not _decorated(node, "overload"):
                    found = node
                case ast.If() | ast.Try():
                    body += [*node.body, *node.orelse]
                case ast.ImportFrom(names=names) if name in self._imported(module, node):
                    wanted = next((a.name for a in names if name == (a.asname or a.name)), name)
                    found = self._definition(self._source(module, node), wanted, seen) or found
                case _:
                    pass
        return found

    def _names(self, module: str) -> dict[str, bool]:
        """What a module binds, and whether it defines it itself."""
        if module not in self.bound:
            self.bound[module] = {}
            self._bind(module, ast.parse(self.sources.get(module, "")).body)  # a folder without __init__ binds nothing
        return self.bound[module]

    def _bind(self, module: str, body: list[ast.stmt]) -> None:
        bound = self.bound[module]
        for node in body:
            match node:
                case ast.FunctionDef() | ast.ClassDef():
                    bound[node.name] = True
                case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple()):
                    self.declared[module] = list(ast.literal_eval(node.value))
                case ast.Assign(targets=targets):
                    bound.update((t.id, False) for t in targets if isinstance(t, ast.Name))
                case ast.AnnAssign(target=ast.Name(id=name)):
                    bound[name] = False
                case ast.ImportFrom() if module in self.packages or node.names[0].name == "*":
                    bound.update(dict.fromkeys(self._imported(module, node), False))
                case ast.If() | ast.Try():
                    self._bind(module, [*node.body, *node.orelse])
                case _:
                    pass

    def _source(self, module: str, node: ast.ImportFrom) -> str:
        """The module that an import takes names from."""
        source = node.module or ""
        if node.level:
            parts = module.split(".")
            kept = parts[: len(parts) - node.level + (module in self.packages)]
            source = ".".join([*kept, *([source] if source else [])])
        return source

    def _imported(self, module: str, node: ast.ImportFrom) -> list[str]:
        """Of names from TVM itself: those that an import binds."""
        source = self._source(module, node)
        if not (source + ".").startswith("tvm."):
            return []
        names = [a.asname or a.name for a in node.names if a.name != "*"]
        starred = any(a.name == "*" for a in node.names) and source in self.sources
        return [*names, *(self.public(source) if starred else ())]


def _decorated(node: ast.FunctionDef | ast.ClassDef, *names: str) -> bool:
    """Whether one of these names is among a definition's decorators, or is what one is an attribute of."""
    return any(
        part.id in names for d in node.decorator_list for part in ast.walk(d) if isinstance(part, ast.Name)
    ) or any(isinstance(d, ast.Attribute) and d.attr in ("setter", *names) for d in node.decorator_list)


def _parameters(node: ast.FunctionDef, own: int) -> list[str]:
    """The parameters' names; what follows a ``*`` is given by name alone."""
    args = node.args
    named = [*args.posonlyargs, *args.args][own + _decorated(node, "autotvm") :]
    by_name = [a.arg for a in args.kwonlyargs]
    names = [*(a.arg for a in named), *(["*", *by_name] if by_name or args.vararg else [])]
    return [n for n in names if n != "span" and not n.startswith("_")]


def collect(clone: str) -> tuple[dict[str, dict[str, list[str]]], dict[str, dict[str, list[str]]]]:
    """For each module, without ``tvm.``: its names, and what callable ones take, with the releases that have them.

    Modules that are left out are the names of one that is called ``?``.
    """
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    taken: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for version in RELEASES:
        release = Release(clone, f"v{version}.0")
        for module in sorted(release.sources):
            short = module.partition(".")[2]
            private = any(part.startswith("_") for part in module.split("."))
            if not private and any(fnmatchcase(short, pattern) for pattern in LEFT_OUT):
                found[UNLISTED][short].append(version)
            elif not private:
                for name in dict.fromkeys(release.own(module)):
                    found[short][name].append(version)
                    for full, parameters in release.parameters(module, name).items():
                        if parameters:
                            taken[short][f"{full} {' '.join(parameters)}"].append(version)
    return found, taken


def main() -> None:
    """Write both files: a line a module and set of releases; a line a callable and set of releases."""
    found, taken = collect(sys.argv[1])
    lines = []
    for module, names in sorted(found.items()):
        rows: dict[str, list[str]] = defaultdict(list)
        for name, releases in names.items():
            rows[",".join(releases)].append(name)
        lines += [f"{module or '.'} {releases} {' '.join(sorted(rows[releases]))}" for releases in sorted(rows)]
    (ROOT / "weft" / "_tvm_names.txt").write_text("\n".join(lines) + "\n")
    called = [
        f"{m or '.'} {','.join(releases)} {t}" for m, rows in sorted(taken.items()) for t, releases in rows.items()
    ]
    (ROOT / "tests" / "tvm_parameters.txt").write_text("\n".join(called) + "\n")
    print(f"wrote {sum(len(line.split()) - 2 for line in lines)} names, {len(called)} with parameters")


if __name__ == "__main__":
    main()
