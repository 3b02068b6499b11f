"""Hooks of ``make site``: pages that are made from the sources, and links that leave the folder of the documentation.

The generator calls ``on_files`` once and ``on_page_markdown`` for each page.
"""

import inspect
import re
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

DOCS = ROOT / "docs"
_SECTION = re.compile(r"\n(?=[A-Z][A-Za-z ]+\n-{3,}\n)")
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)\)")


def made_pages() -> dict[str, str]:
    """Pages that have no file under ``docs``: lists of folders, the changelog, and the public names by module."""
    pages = {f"{folder}/index.md": folder_page(folder, title) for folder, title in FOLDERS.items()}
    pages["changelog.md"] = (ROOT / "CHANGELOG.md").read_text()
    return pages | api_pages()


FOLDERS = {"decisions": "Decisions", "reference": "Reference", "gallery": "Gallery"}


def folder_page(folder: str, title: str) -> str:
    """A list of the pages of a folder, by their headings."""
    rows = [f"- [{heading(p)}]({p.name})" for p in sorted((DOCS / folder).glob("*.md")) if p.name != "index.md"]
    return f"# {title}\n\n" + "\n".join(rows) + "\n"


def heading(path: Path) -> str:
    """The first heading of a page."""
    return next(line for line in path.read_text().splitlines() if line.startswith("# "))[2:]


def api_pages() -> dict[str, str]:
    """A page for each public module, and one that lists them."""
    from tools.public_surface import public_modules, surface

    lines, modules = surface(), public_modules()
    paths = {path_of(line) for line in lines}
    pages, rows = {}, []
    for name, module in sorted(modules.items()):
        inside = [line for line in lines if line.startswith(name + ".")]
        own = [
            s
            for s in inside
            if (parent := path_of(s).rpartition(".")[0]) == name or (parent not in paths and parent not in modules)
        ]
        pages[f"api/{name}.md"] = module_page(name, module, own, lines)
        rows.append(f"- [`{name}`]({name}.md): {first_line(module)}")
    pages["api/index.md"] = "# Public names\n\n" + "\n".join(rows) + "\n"
    return pages


def module_page(name: str, module: ModuleType, own: list[str], lines: list[str]) -> str:
    """What a module is for, then its names with their parameters, what they do, and methods of classes."""
    parts = [f"# {name}\n", docstring(module)]
    for line in own:
        path = path_of(line)
        parts.append(f"## {path.removeprefix(name + '.')}\n\n```python\n{line}\n```\n")
        value = attrgetter(path.removeprefix(name + "."))(module)
        if " = " not in line and not inspect.ismodule(value):
            parts.append(docstring(value) if callable(value) else "")
            methods = [m for m in lines if m.startswith(path + ".")] if inspect.isclass(value) else []
            parts += [method(m, getattr(value, path_of(m).rpartition(".")[2], None)) for m in methods]
    return "\n".join(parts)


def path_of(line: str) -> str:
    """The name of a line of the list of public names."""
    return re.split(r"[ (]", line)[0]


def method(line: str, value: Any) -> str:
    """One item of a class."""
    says = first_line(value) if callable(value) or isinstance(value, property) else ""
    return f"- `{line.split('.', 1)[1]}`" + (f": {says}" if says else "")


def docstring(value: Any) -> str:
    """Sentences as Markdown; sections of parameters, results and errors as they are written."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and text == inspect.getdoc(value.__base__):
        return ""
    prose, *sections = _SECTION.split("\n" + text)
    return plain(prose) + "\n" + "".join(f"\n```text\n{s.strip()}\n```\n" for s in sections)


def first_line(value: Any) -> str:
    """The sentence that a docstring begins with."""
    return plain((inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " "))


def plain(text: str) -> str:
    """Markdown of the marks that docstrings use; what Markdown would take for its own is left as text."""
    text = re.sub(r":\w+:`~?([^`<]+)(?: <[^`]*>)?`", r"`\1`", text).replace("``", "`")
    quoted = re.split(r"(`[^`]*`)", text)
    return "".join(part if i % 2 else re.sub(r"([\[\]<*_])", r"\\\1", part) for i, part in enumerate(quoted)).strip()


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    for path, text in made_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Name files of the repository that are no pages, instead of linking to them; folders have pages that are made."""

    def replaced(link: re.Match[str]) -> str:
        target = (DOCS / page.file.src_uri).parent / link[2]
        return link[0] if target.resolve().is_relative_to(DOCS) else link[1]

    return re.sub(rf"\]\(((?:\.\./)*(?:{'|'.join(FOLDERS)})/)\)", r"](\1index.md)", _LINK.sub(replaced, markdown))
