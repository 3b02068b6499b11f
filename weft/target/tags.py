"""Tags: names of devices, each of which stands for the options of a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.error import InvalidArgument

# Architecture and registers of a block, and the NVIDIA devices that have them, after NVIDIA's lists of CUDA GPUs.
_NVIDIA = {
    ("sm_37", 65536): """
        tesla-k80
    """,
    ("sm_35", 65536): """
        tesla-k40 tesla-k20 quadro-k6000 quadro-k5200 quadro-k610m quadro-k510m geforce-gtx-titan-z
        geforce-gtx-titan-black geforce-gtx-titan geforce-gtx-780-ti geforce-gtx-780 geforce-gt-730
        geforce-gt-720 geforce-gt-705 geforce-gt-640-gddr5 geforce-920m
    """,
    ("sm_20", 32768): """
        tesla-c2075 tesla-c2050 tesla-c2070 quadro-plex-7000 geforce-gtx-590 geforce-gtx-580 geforce-gtx-570
        geforce-gtx-480 geforce-gtx-470 geforce-gtx-465 geforce-gtx-480m
    """,
    ("sm_80", 65536): """
        nvidia-a100 nvidia-a30
    """,
    ("sm_90a", 65536): """
        nvidia-h100
    """,
    ("sm_86", 65536): """
        nvidia-a40 nvidia-a10 nvidia-a10g nvidia-a16 nvidia-a2 rtx-a6000 geforce-rtx-3090-ti geforce-rtx-3090
        geforce-rtx-3080-ti geforce-rtx-3080 geforce-rtx-3070-ti geforce-rtx-3070 geforce-rtx-3060
    """,
    ("sm_75", 65536): """
        nvidia-t4 quadro-rtx-8000 quadro-rtx-6000 quadro-rtx-5000 quadro-rtx-4000 rtx-5000 rtx-4000 rtx-3000
        t2000 t1000 nvidia-titan-rtx geforce-rtx-2080-ti geforce-rtx-2080 geforce-rtx-2070 geforce-rtx-2060
    """,
    ("sm_70", 65536): """
        nvidia-v100 quadro-gv100 nvidia-titan-v
    """,
    ("sm_60", 65536): """
        tesla-p100 quadro-gp100
    """,
    ("sm_61", 65536): """
        tesla-p40 tesla-p4 quadro-p6000 quadro-p5000 quadro-p4000 quadro-p2200 quadro-p2000 quadro-p1000
        quadro-p620 quadro-p600 quadro-p400 p620 p520 quadro-p5200 quadro-p4200 quadro-p3200 quadro-p3000
        quadro-p500 nvidia-titan-xp nvidia-titan-x geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti
        geforce-gtx-1070 geforce-gtx-1060 geforce-gtx-1050
    """,
    ("sm_52", 65536): """
        tesla-m60 tesla-m40 quadro-m6000-24gb quadro-m6000 quadro-m5000 quadro-m4000 quadro-m2000 quadro-m5500m
        quadro-m2200 quadro-m620 geforce-gtx-titan-x geforce-gtx-980-ti geforce-gtx-980 geforce-gtx-970
        geforce-gtx-960 geforce-gtx-950 geforce-gtx-980m geforce-gtx-970m geforce-gtx-965m geforce-910m
    """,
    ("sm_30", 65536): """
        tesla-k10 quadro-k5000 quadro-k4200 quadro-k4000 quadro-k2000 quadro-k2000d quadro-k600 quadro-k420
        quadro-410 quadro-k6000m quadro-k5200m quadro-k5100m quadro-k500m quadro-k4200m quadro-k4100m
        quadro-k3100m quadro-k2200m quadro-k2100m quadro-k1100m nvidia-nvs-510 geforce-gtx-770 geforce-gtx-760
        geforce-gtx-690 geforce-gtx-680 geforce-gtx-670 geforce-gtx-660-ti geforce-gtx-660
        geforce-gtx-650-ti-boost geforce-gtx-650-ti geforce-gtx-650 geforce-gt-740 geforce-gtx-880m
        geforce-gtx-870m geforce-gtx-860m-sm-30 geforce-gtx-780m geforce-gtx-770m geforce-gtx-765m
        geforce-gtx-760m geforce-gtx-680mx geforce-gtx-680m geforce-gtx-675mx geforce-gtx-670mx geforce-gtx-660m
        geforce-gt-755m geforce-gt-750m geforce-gt-650m geforce-gt-745m geforce-gt-645m geforce-gt-740m
        geforce-gt-730m geforce-gt-640m geforce-gt-640m-le geforce-gt-735m
    """,
    ("sm_50", 65536): """
        quadro-k2200 quadro-k1200 quadro-k620 quadro-m1200 quadro-m520 quadro-m5000m quadro-m4000m quadro-m3000m
        quadro-m2000m quadro-m1000m quadro-k620m quadro-m600m quadro-m500m nvidia-nvs-810 geforce-gtx-750-ti
        geforce-gtx-750 geforce-gtx-960m geforce-gtx-950m geforce-940m geforce-930m geforce-gtx-860m-sm-50
        geforce-gtx-850m geforce-840m geforce-830m
    """,
    ("sm_21", 32768): """
        nvidia-nvs-315 nvidia-nvs-310 nvs-5400m nvs-5200m nvs-4200m geforce-gtx-560-ti geforce-gtx-550-ti
        geforce-gtx-460 geforce-gts-450 geforce-gt-730-ddr3,128bit geforce-gt-640-gddr3 geforce-gt-630
        geforce-gt-620 geforce-gt-610 geforce-gt-520 geforce-gt-440 geforce-gt-430 geforce-820m geforce-800m
        geforce-gtx-675m geforce-gtx-670m geforce-gt-635m geforce-gt-630m geforce-gt-625m geforce-gt-720m
        geforce-gt-620m geforce-710m geforce-705m geforce-610m geforce-gtx-580m geforce-gtx-570m
        geforce-gtx-560m geforce-gt-555m geforce-gt-550m geforce-gt-540m geforce-gt-525m geforce-gt-520mx
        geforce-gt-520m geforce-gtx-485m geforce-gtx-470m geforce-gtx-460m geforce-gt-445m geforce-gt-435m
        geforce-gt-420m geforce-gt-415m geforce-410m
    """,
    ("sm_89", 65536): """
        geforce-rtx-4090
    """,
    ("sm_53", 32768): """
        jetson-nano jetson-tx1 tegra-x1
    """,
    ("sm_62", 32768): """
        jetson-tx2
    """,
}
_CACHE_BYTES = {"nvidia-a100": 41943040, "nvidia-h100": 52428800, "geforce-rtx-4090": 75497472}
_JETSON_HOSTS = {
    "jetson-agx-xavier": ("sm_72", "carmel", 8),
    "jetson-orin-nano": ("sm_87", "carmel", 6),
    "jetson-agx-orin-32gb": ("sm_87", "cortex-a78", 8),
    "jetson-agx-orin-64gb": ("sm_87", "cortex-a78", 12),
}
_AWS = {"large": 1, "xlarge": 2, **{f"{n}xlarge": 2 * n for n in (2, 4, 9, 12, 18, 24)}}
_APPLE = {"m1-gpu": 1024, "m1-gpu-restricted": 256, "m2-gpu": 1024}
ARM_BOARDS: dict[str, dict[str, Any]] = {
    "pixel2": {"model": "snapdragon835", "mtriple": "arm64-linux-android", "mattr": ["+neon"]},
    **{
        n: {"model": "kirin970", "mtriple": "arm64-linux-android", "mattr": ["+neon"]}
        for n in ("mate10", "mate10pro", "p20", "p20pro")
    },
    "rasp3b": {"model": "bcm2837", "mtriple": "armv7l-linux-gnueabihf", "mattr": ["+neon"]},
    "rasp4b": {"model": "bcm2711", "mtriple": "armv8l-linux-gnueabihf", "mattr": ["+neon"], "mcpu": "cortex-a72"},
    "rasp4b64": {"model": "bcm2711", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"], "mcpu": "cortex-a72"},
    "rk3399": {"model": "rk3399", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]},
    "pynq": {"model": "pynq", "mtriple": "armv7a-linux-eabi", "mattr": ["+neon"]},
    "ultra96": {"model": "ultra96", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]},
    **{
        n: {"model": n, "mtriple": "armv7a-linux-gnueabihf", "mattr": ["+neon", "+vfp4", "+thumb2"], "mcpu": cpu}
        for n, cpu in (("beagleai", "cortex-a15"), ("stm32mp1", "cortex-a7"))
    },
    "thunderx": {
        "model": "thunderx",
        "mtriple": "aarch64-linux-gnu",
        "mattr": ["+neon", "+crc", "+lse"],
        "mcpu": "thunderxt88",
    },
}
"""Options of boards with Arm processors, by their names."""


def _cuda(arch: str, registers: int) -> dict[str, Any]:
    return {
        "kind": "cuda",
        "arch": arch,
        "max_shared_memory_per_block": 49152,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": registers,
    }


def _known() -> dict[str, dict[str, Any]]:
    tags: dict[str, dict[str, Any]] = {}
    for (arch, registers), names in _NVIDIA.items():
        for name in names.split():
            cache = {"l2_cache_size_bytes": _CACHE_BYTES[name]} if name in _CACHE_BYTES else {}
            tags[f"nvidia/{name}"] = _cuda(arch, registers) | cache
    for name, (arch, cpu, cores) in _JETSON_HOSTS.items():
        host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": cpu, "num-cores": cores}
        tags[f"nvidia/{name}"] = _cuda(arch, 65536) | {"host": host}
    tags["wasm32"] = {"kind": "llvm", "mtriple": "wasm32-unknown-unknown", "num-cores": 1}
    for name, board in ARM_BOARDS.items():
        tags[f"arm/{name}"] = {"kind": "llvm", "keys": ["arm_cpu", "cpu"], "device": "arm_cpu", **board}
    raspberry = {k: v for k, v in ARM_BOARDS["rasp4b64"].items() if k != "model"} | {"kind": "llvm", "num-cores": 4}
    tags["raspberry-pi/4b-aarch64"] = raspberry | {"host": raspberry}
    for name, cores in _AWS.items():
        cpu = "cascadelake" if cores in (24, 48) else "skylake-avx512"
        tags[f"aws/cpu/c5.{name}"] = {"kind": "llvm", "keys": ["x86", "cpu"], "mcpu": cpu, "num-cores": cores}
    for name, threads in _APPLE.items():
        host = {"kind": "llvm", "mtriple": "arm64-apple-macos", "mcpu": f"apple-{name[:2]}"}
        tags[f"apple/{name}"] = {
            "kind": "metal",
            "max_threads_per_block": threads,
            "thread_warp_size": 32,
            "max_shared_memory_per_block": 32768,
            "host": host,
        }
    return tags


_TAGS = _known()


def tag_options(name: str) -> dict[str, Any] | None:
    """Return the options that a tag stands for, or None."""
    found = _TAGS.get(name)
    return None if found is None else dict(found)


def list_tags() -> dict[str, dict[str, Any]]:
    """Return all tags with their options."""
    return {name: dict(options) for name, options in _TAGS.items()}


def register_tag(name: str, config: Mapping[str, Any], override: bool = False) -> dict[str, Any]:
    """Add a tag.

    Raises
    ------
    InvalidArgument
        When there is one of this name, unless `override` is true.
    """
    if name in _TAGS and not override:
        raise InvalidArgument(f"there is a target tag '{name}' already", help="register it with override=True")
    _TAGS[name] = dict(config)
    return dict(config)
