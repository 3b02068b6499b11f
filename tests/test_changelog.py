"""The changelog has the version of the package, and fragments are named as the release expects them."""

import re
from pathlib import Path

import weft

ROOT = Path(__file__).resolve().parent.parent


def test_version_has_an_entry():
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert versions[0] == weft.__version__, "a release has a version of its own in weft/__init__.py and CHANGELOG.md"
    assert sorted(versions, key=lambda v: [int(n) for n in v.split(".")], reverse=True) == versions


def test_fragments_are_a_sentence_or_two():
    for path in (ROOT / "changelog.d").iterdir():
        if path.name != "README.md":
            assert re.fullmatch(r"[\w-]+\.(feature|bugfix|removal|misc)\.md", path.name), path.name
            assert path.read_text().strip(), f"{path.name} says nothing"
