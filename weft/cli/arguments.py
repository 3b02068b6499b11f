"""What several commands take: ``name=1,3,320,320`` shapes and ``name=@file.npy`` values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from weft.error import InvalidArgument, reading
from weft.runtime import read_arrays


def demand_folders(*outputs: Path | None) -> None:
    """Refuse files to write whose folders do not exist, before anything is computed for them."""
    for output in outputs:
        if output is not None and not output.parent.is_dir():
            raise InvalidArgument("the output's folder does not exist", found=str(output.parent))


def parse_shapes(options: Iterable[str]) -> dict[str, list[int | str]]:
    """Read ``--shape`` options: ``x=1,3,320,320``; a dimension may be a name, which leaves it symbolic.

    Raises
    ------
    InvalidArgument
        When one is malformed or an input comes twice.
    """
    shapes: dict[str, list[int | str]] = {}
    for option in options:
        name, separator, text = option.partition("=")
        dims = [d.strip() for d in text.split(",")] if text.strip() else []
        if not name or not separator or any(not d for d in dims):
            raise InvalidArgument("malformed --shape", expected="name=1,3,320,320", found=option)
        if name in shapes:
            raise InvalidArgument(f"two shapes for input '{name}'", found=option)
        shapes[name] = [int(d) if d.lstrip("-").isdigit() else d for d in dims]
    return shapes


def read_inputs(options: Iterable[str]) -> dict[str, Any]:
    """Read ``--input`` options: ``x=@x.npy``, ``@all.npz`` with an array per name, or ``x=[[1, 2], [3, 4]]``.

    Raises
    ------
    InvalidArgument
        When one is malformed, a file cannot be read, or an input comes twice.
    """
    values: dict[str, Any] = {}
    for option in options:
        found = _read_archive(Path(option[1:])) if option.startswith("@") else _read_one(option)
        for name, value in found.items():
            if name in values:
                raise InvalidArgument(f"two values for input '{name}'", found=option)
            values[name] = value
    return values


def _read_one(option: str) -> dict[str, Any]:
    name, separator, text = option.partition("=")
    if not name or not separator or not text:
        raise InvalidArgument("malformed --input", expected="name=@file.npy, @file.npz or name=[1, 2]", found=option)
    if text.startswith("@"):
        value = read_arrays(text[1:])
        if not isinstance(value, np.ndarray):
            raise InvalidArgument(
                f"input '{name}' needs one array",
                expected="a .npy file",
                found=text[1:],
                help=f"an archive goes in without a name: --input {text}",
            )
        return {name: value}
    with reading(f"input '{name}' is neither a file nor JSON", expected="@file.npy or [1, 2]", found=text):
        return {name: json.loads(text)}


def _read_archive(path: Path) -> dict[str, Any]:
    found = read_arrays(path)
    if isinstance(found, np.ndarray):
        raise InvalidArgument("a .npy file needs the input's name", expected=f"name=@{path}", found=f"@{path}")
    return found
