"""Model files become programs of Relay; their names say which importer reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft import relay
from weft.error import require
from weft.frontend import relay as importers
from weft.tvmc.model import TVMCException, TVMCModel

__all__ = ["get_frontend_by_name", "get_frontend_names", "guess_frontend", "load_model", "parse_shape_string"]

Shapes = Mapping[str, Sequence[Any]]


class Frontend(NamedTuple):
    """One format: its name, the endings of its files, and what reads one with shapes of inputs and options."""

    name: str
    suffixes: tuple[str, ...]
    load: Callable[..., Any]


def _torch(path: str, shape_dict: Shapes | None = None, **options: Any) -> Any:
    if shape_dict is None:
        raise TVMCException("a model of PyTorch does not know its inputs", expected="--input-shapes, or shape_dict")
    module = require("torch", extra="torch").jit.load(path).eval()
    return importers.from_pytorch(module, list(shape_dict.items()), **options)


def _relay(path: str, **_: Any) -> Any:
    return relay.fromtext(Path(path).read_text()), {}


_FRONTENDS = {
    f.name: f
    for f in (
        Frontend("onnx", ("onnx",), lambda path, shape_dict=None, **o: importers.from_onnx(path, shape_dict, **o)),
        Frontend(
            "tflite", ("tflite",), lambda path, shape_dict=None, **o: importers.from_tflite(path, shape_dict, **o)
        ),
        Frontend("pytorch", ("pth", "zip", "pt"), _torch),
        Frontend("relay", ("relay", "rly"), _relay),
    )
}


def get_frontend_names() -> list[str]:
    """The formats."""
    return list(_FRONTENDS)


def get_frontend_by_name(name: str) -> Frontend:
    """The format of that name.

    Raises
    ------
    TVMCException
        When there is none.
    """
    if name not in _FRONTENDS:
        known = ", ".join(_FRONTENDS)
        raise TVMCException(
            f"no importer for '{name}'", expected=known, help="export the model to ONNX by its own tools"
        )
    return _FRONTENDS[name]


def guess_frontend(path: str) -> Frontend:
    """The format of a file, by the ending of its name.

    Raises
    ------
    TVMCException
        When it is none's.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    found = next((f for f in _FRONTENDS.values() if suffix in f.suffixes), None)
    if found is None:
        endings = ", ".join(f".{s}" for f in _FRONTENDS.values() for s in f.suffixes)
        raise TVMCException(f"the name '{path}' does not say the model's format", expected=endings, help="name it")
    return found


def load_model(
    path: str, model_format: str | None = None, shape_dict: Shapes | None = None, **kwargs: Any
) -> TVMCModel:
    """Read a model.

    Parameters
    ----------
    path : str
        The file.
    model_format : str, optional
        One of :func:`get_frontend_names`; by default the file's name says it.
    shape_dict : mapping of str to list of int, optional
        Shapes of inputs, by name; a model of PyTorch needs them.
    **kwargs
        Those of the importer, in ``weft.relay.frontend``.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    TVMCException
        When the format is unknown.
    """
    frontend = get_frontend_by_name(model_format) if model_format else guess_frontend(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file '{path}'")
    return TVMCModel(*frontend.load(str(path), shape_dict=shape_dict, **kwargs))


def parse_shape_string(inputs_string: str) -> dict[str, list[Any]]:
    """Read ``"x:[1,3,224,224] ids:[-1,128]"``; a dimension that is not above 0 is unknown.

    Raises
    ------
    TVMCException
        When it is malformed.
    """
    found = re.findall(r"([^\s\[\]]+?)\s*:\s*\[([-\d,\s]+)\]", inputs_string)
    if not found:
        raise TVMCException("malformed input shapes", expected='"name:[1,3,224,224] other:[1,8]"', found=inputs_string)
    return {name: [int(d) if int(d) > 0 else relay.Any() for d in dims.split(",") if d.strip()] for name, dims in found}
