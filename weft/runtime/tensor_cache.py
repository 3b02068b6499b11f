"""Tensors by name: folders of them, bytes beside ``tensor-cache.json``, and those that this process has loaded.

Programs reach the loaded ones by ``vm.builtin.tensor_cache.*`` and ``vm.builtin.param_array_from_cache*``. Names, files
and arguments are Apache TVM's; 0.18 called the file ``ndarray-cache.json``, which is read too.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.error import InvalidArgument, reading
from weft.runtime.device import Device, cpu
from weft.runtime.regular_file import read_regular, write_file
from weft.runtime.tensor import Tensor, tensor

__all__ = ["dump_ndarray_cache", "dump_tensor_cache", "load_ndarray_cache", "load_tensor_cache"]

_FILE, _OLD_FILE = "tensor-cache.json", "ndarray-cache.json"
_RAW, _BFLOAT = "raw", "f32-to-bf16"


def _convert_f32_to_bf16(value: np.ndarray) -> np.ndarray:
    """Round to the nearest bfloat16, as uint16; a finite number stays one."""
    bits = value.view("uint32")
    largest = np.array(0x7F7F0000, "uint32").view("float32")
    bias = np.where(np.abs(value) < largest, ((bits >> 16) & 1) + 0x7FFF, 0).astype("uint32")
    return ((bits + bias) >> 16).astype("uint16")


def _convert_bf16_to_f32(value: np.ndarray) -> np.ndarray:
    """Widen bfloat16, given as uint16."""
    return (value.view("uint16").astype("uint32") << 16).view("float32")


class _Shards:
    """The files of a folder that is being written."""

    def __init__(self, folder: Path, limit: int, shards: list[dict[str, Any]]) -> None:
        self.folder, self.limit, self.shards = folder, limit, shards
        self.known: dict[str, tuple[Any, dict[str, Any]]] = {r["name"]: (s, r) for s in shards for r in s["records"]}
        self.data, self.records = bytearray(), []
        self.changed: list[dict[str, Any]] = []

    def add(self, record: dict[str, Any], data: bytes) -> None:
        """Write a tensor: over the one of its name, or behind the others."""
        if record["name"] in self.known:
            shard, old = self.known[record["name"]]
            if shard is None or old["nbytes"] != record["nbytes"]:
                raise InvalidArgument(
                    f"'{record['name']}' is there already", expected=f"another name, or {old['nbytes']} bytes for it"
                )
            with (self.folder / shard["dataPath"]).open("r+b") as file:
                file.seek(old["byteOffset"])
                file.write(data)
            old.update(record)
            self.changed.append(shard)
            return
        if self.data and len(self.data) + len(data) > self.limit:
            self.flush()
        self.known[record["name"]] = (None, record)
        record["byteOffset"] = len(self.data)
        self.records.append(record)
        self.data += data

    def flush(self) -> None:
        """Write what waits to a file of its own."""
        if self.records:
            path = f"params_shard_{len(self.shards)}.bin"
            (self.folder / path).write_bytes(self.data)
            shard = {"dataPath": path, "format": "raw-shard", "nbytes": len(self.data), "records": self.records}
            self.shards.append(shard)
            self.changed.append(shard)
            self.data, self.records = bytearray(), []

    def finish(self) -> list[dict[str, Any]]:
        """Write the rest, and return the description of all."""
        self.flush()
        for shard in self.changed:
            shard["md5sum"] = hashlib.md5((self.folder / shard["dataPath"]).read_bytes()).hexdigest()
        return self.shards


def dump_tensor_cache(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]],
    cache_dir: str | Path,
    encode_format: str = _BFLOAT,
    meta_data: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    shard_cap_mb: float = 32,
    show_progress: bool = True,
    update_if_exists: bool = False,
) -> None:
    """Write tensors to a folder.

    Parameters
    ----------
    params : mapping or iterable of (str, array)
        The tensors, by their names.
    encode_format : str
        ``"raw"``, or ``"f32-to-bf16"``: float32 is rounded to bfloat16.
    meta_data : mapping or callable, optional
        What else the description holds, or a function that returns it afterwards.
    shard_cap_mb : float
        About how large a file becomes.
    show_progress : bool
        Nothing is printed either way.
    update_if_exists : bool
        Whether tensors that the folder has are replaced and others kept; else what it had is forgotten.

    Raises
    ------
    InvalidArgument
        When a name comes twice, or a replaced tensor has another size.
    """
    if encode_format not in (_RAW, _BFLOAT):
        raise InvalidArgument("unknown encode_format", expected=f"'{_RAW}' or '{_BFLOAT}'", found=repr(encode_format))
    folder = Path(cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with reading(f"'{folder / _FILE}' does not describe tensors", help="move it away, or write to another folder"):
        old = json.loads((folder / _FILE).read_bytes()) if update_if_exists and (folder / _FILE).is_file() else {}
        shards = _Shards(folder, int(shard_cap_mb * (1 << 20)), old.get("records", []))
    for name, value in params.items() if isinstance(params, Mapping) else params:
        array = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
        dtype = str(array.dtype)
        rounded = dtype == "float32" and encode_format == _BFLOAT
        data = (_convert_f32_to_bf16(array) if rounded else array).tobytes()
        form = _BFLOAT if rounded else _RAW
        row = {"name": name, "shape": list(array.shape), "dtype": dtype, "format": form, "nbytes": len(data)}
        shards.add(row, data)
    records = shards.finish()
    more: Any = meta_data() if callable(meta_data) else meta_data
    text = json.dumps({"metadata": {**old.get("metadata", {}), **(more or {})}, "records": records}, indent=4)
    write_file(folder / _FILE, text)


def load_tensor_cache(cachepath: str | Path, device: Device) -> tuple[dict[str, Tensor], Any]:
    """Read a folder: its tensors by name, and what else its description holds.

    Parameters
    ----------
    cachepath : path
        The folder, or the description in it.

    Raises
    ------
    InvalidArgument
        When there is no description, or a file is not what it says.
    """
    path = Path(cachepath)
    if path.is_dir():
        path = path / (_OLD_FILE if (path / _OLD_FILE).is_file() and not (path / _FILE).is_file() else _FILE)
    if not path.is_file():
        raise InvalidArgument("there are no tensors", expected=_FILE, found=str(path))
    out: dict[str, Tensor] = {}
    with reading(f"'{path}' does not describe tensors", also=(OSError,)):
        description = json.loads(read_regular(path))
        for shard in description["records"]:
            data = _shard(path.parent, shard)
            out.update((str(record["name"]), tensor(_read(record, data), device=device)) for record in shard["records"])
        return out, description.get("metadata", {})


def _shard(folder: Path, shard: Mapping[str, Any]) -> bytes:
    name = shard["dataPath"]
    if Path(name).name != name or name == "..":
        raise InvalidArgument("files lie beside their description", expected="a name", found=str(name))
    data = read_regular(folder / name)
    if len(data) != shard["nbytes"] or shard.get("md5sum") not in (None, hashlib.md5(data).hexdigest()):
        raise InvalidArgument(
            f"'{name}' is damaged", expected=f"{shard['nbytes']} bytes of the noted md5sum", found=f"{len(data)} bytes"
        )
    return data


def _read(record: Mapping[str, Any], data: bytes) -> np.ndarray:
    start, count, shape = record["byteOffset"], record["nbytes"], record["shape"]
    if min(start, count, *shape) < 0:
        raise InvalidArgument(f"tensor '{record['name']}' has a negative size", found=f"{start}, {count}, {shape}")
    part = data[start : start + count]
    rounded = record["format"] == _BFLOAT and record["dtype"] == "float32"
    dtype = "uint16" if rounded else np.dtype(record["dtype"])
    if len(part) != count or len(part) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise InvalidArgument(f"tensor '{record['name']}' does not have the bytes of its shape", found=str(len(part)))
    array = np.frombuffer(part, dtype)
    return (_convert_bf16_to_f32(array) if rounded else array).reshape(shape)


dump_ndarray_cache, load_ndarray_cache = dump_tensor_cache, load_tensor_cache

_loaded: dict[str, Tensor] = {}


def load(path: str, device_type: int, device_id: int) -> None:
    """Load the tensors of a folder, beside those that are loaded."""
    _loaded.update(load_tensor_cache(str(path), Device(device_type, device_id))[0])


def get(name: str) -> Tensor | None:
    """Return a loaded tensor, or None."""
    return _loaded.get(str(name))


def update(name: str, value: object, override: bool = False) -> None:
    """Set a tensor by name."""
    if str(name) in _loaded and not override:
        raise InvalidArgument(f"a tensor '{name}' is loaded already", help="pass override=True")
    _loaded[str(name)] = tensor(value, device=cpu())


def remove(name: str) -> None:
    """Forget a tensor."""
    _loaded.pop(str(name), None)


def clear() -> None:
    """Forget all tensors."""
    _loaded.clear()


def array(prefix: str, count: int) -> list[Tensor]:
    """``<prefix>_0``, ``<prefix>_1`` and so on: `count` of them, or, for -1, as many as there are."""
    names = [f"{prefix}_{i}" for i in range(len(_loaded) if count < 0 else count)]
    found = next((i for i, name in enumerate(names) if name not in _loaded), len(names))
    return by_name(names[:found] if count < 0 else names)


def by_name(names: Sequence[str]) -> list[Tensor]:
    """Return loaded tensors."""
    missing = [str(n) for n in names if str(n) not in _loaded]
    if missing:
        raise InvalidArgument("tensors are not loaded", found=", ".join(missing), help="vm.builtin.tensor_cache.load")
    return [_loaded[str(n)] for n in names]


def by_name_unpacked(*names: str) -> list[Tensor]:
    """Return loaded tensors whose names are arguments."""
    return by_name(names)
