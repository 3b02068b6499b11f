"""Links, anchors and paths that pages and sources name are there, and all pages are reached from the first one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<![\w/.-])docs/[\w./-]*\w")


def prose(path):
    """A page without its code, where brackets are no links."""
    text = re.sub(r"^```(?s:.*?)^```|^ {4}.*$", "", path.read_text(), flags=re.M)
    return re.sub(r"``[^`]*``|`[^`]*`", lambda code: code[0] if code[0].count("](") else "``", text)


def anchors(path):
    """The names of a page's headings, as generators of sites make them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def broken(path):
    for link in LINK.findall(prose(path)):
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        if link.startswith(("http://", "https://")):
            continue
        if not target.exists():
            yield f"{path.relative_to(ROOT)}: {link} is not there"
        elif anchor and anchor not in anchors(target):
            yield f"{path.relative_to(ROOT)}: {name} has no heading '{anchor}'"


def test_links_lead_somewhere():
    found = [error for path in PAGES for error in broken(path)]
    assert not found, "\n".join(found)
    assert sum(len(LINK.findall(prose(path))) for path in PAGES) > 40


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("[a](b.md)", 1),
        ("[a](page.md)", 0),
        ("[a](page.md#two-words)", 0),
        ("[a](page.md#two)", 1),
        ("[a](#one)", 0),
        ("```\n[a](b.md)\n```\n", 0),
    ],
)
def test_what_a_broken_link_is(text, n, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_links.ROOT", tmp_path)
    (tmp_path / "page.md").write_text("# Two words!\n")
    (tmp_path / "it.md").write_text(f"# One\n\n{text}\n")
    assert len(list(broken(tmp_path / "it.md"))) == n


def test_every_page_is_reached():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    missing = [
        str(p.relative_to(ROOT))
        for p in PAGES
        if p.is_relative_to(index.parent)
        and p != index
        and p.resolve() not in linked
        and p.parent.resolve() not in linked
    ]
    assert not missing, f"docs/index.md links neither to these nor to their folders: {missing}"


def test_paths_that_sources_name_are_there():
    """``docs/decisions/019`` names a page by its number."""
    files = [*PAGES, *(p for folder in ("weft", "native", "tests", "tools") for p in (ROOT / folder).rglob("*.*"))]
    wrong = []
    for path in files:
        if path.suffix in {".py", ".md", ".h", ".cc", ".def", ".toml"} and "changelog" not in path.name.lower():
            for name in set(NAMED.findall(path.read_text())):
                if not (ROOT / name).exists() and not list(ROOT.glob(f"{name}*")):
                    wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong, "\n".join(wrong)


def test_no_package_index_is_named():
    """Which index packages come from is a setting of the machine that installs them."""
    hosts = re.compile("|".join(("py" + r"pi\.(org|io)", "python" + "hosted", "test" + "py" + "pi")))
    files = [p for p in ROOT.iterdir() if p.is_file()]
    files += [
        p
        for top in ("weft", "native", "tests", "tools", "docs", "examples", "benchmarks", "changelog.d", ".ci")
        for p in (ROOT / top).rglob("*")
        if p.suffix in {".py", ".md", ".toml", ".txt", ".cc", ".h", ".yml", ""} and p.is_file()
    ]
    found = [str(p) for p in files if hosts.search(p.read_text(errors="ignore"))]
    assert not found and len(files) > 1000
