"""Files that somebody names: whatever is there that is no regular file is refused, and nothing waits for it."""

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import weft
from tests.frontend.models import model_of
from tests.refusals import refuses
from weft import runtime, tune
from weft.cli.arguments import read_inputs
from weft.error import ExecutableError, InvalidArgument, ModelImportError
from weft.frontend.onnx import from_onnx

KINDS = {
    "pipe": "named pipe",
    "folder": "a folder",
    "socket": "a socket",
    "device": "a device",
    "link": "named pipe",
    "zero": "zero byte",
}
READERS: dict[str, tuple[Any, Any]] = {
    "any": (runtime.open_regular, OSError),
    "params": (runtime.load_param_dict_from_file, OSError),
    "library": (runtime.load_module, ExecutableError),
    "model": (from_onnx, ModelImportError),
    "session": (weft.Session, ModelImportError),
    "records": (tune.open_database, InvalidArgument),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    monkeypatch.setenv("WEFT_MODEL_CACHE", "1")
    return tmp_path


def made(kind: str) -> Path:
    path = Path(kind)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        os.mkfifo("far")
        path.symlink_to("far")
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(kind)
    else:
        path = Path("/dev/zero" if kind == "device" else "zero\0byte")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_read(here: Path, kind: str, reader: str) -> None:
    read, error = READERS[reader]
    refuses(error, KINDS[kind], read, made(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_and_external_data_are_regular_files(here: Path, kind: str) -> None:
    path = made(kind)
    elsewhere = {"device": "in the model's folder", "zero": "in the model's folder"}
    refuses(ModelImportError, elsewhere.get(kind, KINDS[kind]), from_onnx, model_with(location=str(path)))
    refuses(InvalidArgument, KINDS[kind], read_inputs, [f"x=@{path}"])


def model_with(**external: str) -> Path:
    """A model whose weight of 48 bytes is described by `external`."""
    x = np.ones((2, 4), np.float32)
    model = model_of(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], weights={"w": x[0].repeat(3)}
    )
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.dims[:] = [4, 3]
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in external.items():
        weight.external_data.add(key=key, value=value)
    path = Path("model.onnx")
    path.write_bytes(model.SerializeToString())
    return path


def test_links_are_followed_before_the_folder_is_compared(here: Path) -> None:
    (here / "m").mkdir()
    (here / "secret").write_bytes(bytes(48))
    os.chdir("m")
    Path("weights").symlink_to("../secret")
    Path("folder").symlink_to("..")
    for location in ("weights", "folder/secret", "../secret", "../m/../secret"):
        with pytest.raises(ModelImportError, match=r"tensor 'w': external data must lie in the model's folder"):
            from_onnx(model_with(location=location))
    Path("around").symlink_to("around")
    refuses(ModelImportError, "cannot read the external file 'around'", from_onnx, model_with(location="around"))
    Path("own").write_bytes(bytes(48))
    Path("inside").symlink_to("own")
    assert "main" in from_onnx(model_with(location="inside"))


def test_a_model_behind_a_link_finds_the_data_beside_it(here: Path) -> None:
    """As caches of models lay them out: names in one folder, contents in another."""
    (here / "blobs").mkdir()
    (here / "names").mkdir()
    model_with(location="weights").rename("blobs/a")
    Path("blobs/b").write_bytes(bytes(48))
    Path("names/model.onnx").symlink_to("../blobs/a")
    Path("names/weights").symlink_to("../blobs/b")
    assert "main" in from_onnx("names/model.onnx")


@pytest.mark.parametrize(
    ("offset", "length", "message"),
    [
        ("0", "49", "not all inside"),
        ("1", "48", "not all inside"),
        ("-1", "48", "not all inside"),
        ("0", "-48", "not all inside"),
        (str(1 << 64), "48", "not all inside"),
        (str((1 << 64) - 48), "96", "not all"),
        ("9" * 99, "48", "malformed"),
        ("0x0", "48", "malformed"),
        ("1_0", "38", "malformed"),
        ("0", "40", "too little"),
    ],
)
def test_places_of_external_data(here: Path, offset: str, length: str, message: str) -> None:
    Path("weights").write_bytes(bytes(48))
    refuses(ModelImportError, message, from_onnx, model_with(location="weights", offset=offset, length=length))


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable")
def test_files_that_may_not_be_read(here: Path) -> None:
    path = Path("closed")
    path.write_bytes(b"x")
    path.chmod(0)
    for read, error in READERS.values():
        refuses(error, "Permission denied", read, path)
