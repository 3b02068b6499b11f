"""The kinds ``cuda`` and ``nvptx``: NVIDIA's GPUs, by NVIDIA's compiler or by LLVM."""

import difflib

from weft.error import InvalidArgument
from weft.target.cuda.build import cuda_code, nvptx_code
from weft.target.gpu import register_gpu
from weft.target.target import Target, option_text

_ARCHITECTURES = {
    **dict.fromkeys(("sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_75"), 63),
    "sm_80": 70,
    "sm_86": 71,
    "sm_87": 74,
    "sm_89": 78,
    "sm_90": 78,
    "sm_90a": 80,
    **dict.fromkeys(("sm_100", "sm_100a"), 86),
    **dict.fromkeys(("sm_120", "sm_120a"), 87),
    **dict.fromkeys(("sm_100f", "sm_103", "sm_103a", "sm_103f", "sm_120f", "sm_121", "sm_121a", "sm_121f"), 88),
    **dict.fromkeys(("sm_88", "sm_110", "sm_110a", "sm_110f"), 90),
}
"""Architecture to the least version of PTX that has it, and shuffles and barriers of warps."""
_PTX_VERSIONS = (63, 64, 65, *range(70, 79), *range(80, 89), 90)
_OPTIONS = tuple(
    (
        "max_num_threads thread_warp_size keys device model host tag libs max_threads_per_block "
        "max_shared_memory_per_block registers_per_block l2_cache_size_bytes target_device_type"
    ).split()
)


def _check_nvptx(target: Target) -> None:
    """Refuse an architecture or a version of PTX that LLVM does not have: it would end the process."""
    cpu, given = target.cpu, target.attrs.get("mattr")
    if cpu not in _ARCHITECTURES:
        near = difflib.get_close_matches(cpu, _ARCHITECTURES, 1)
        raise InvalidArgument(
            f"target 'nvptx' has no architecture '{cpu}'",
            expected="one of " + ", ".join(sorted(_ARCHITECTURES, key=lambda c: (len(c.rstrip("af")), c))),
            help=f"did you mean '-mcpu={near[0]}'?" if near else None,
        )
    possible = [f"+ptx{v}" for v in _PTX_VERSIONS if v >= _ARCHITECTURES[cpu]]
    if given is not None and option_text(given) not in possible:
        raise InvalidArgument(
            f"-mattr of target 'nvptx' is a version of PTX that has {cpu}",
            expected="one of " + ", ".join(possible),
            found=repr(option_text(given)),
        )


def _version_of_ptx(target: Target) -> str:
    return ",".join("+" + f for f in sorted(target.features)) or f"+ptx{_ARCHITECTURES[target.cpu]}"


CUDA = register_gpu("cuda", "cuda", cuda_code, options=("arch", *_OPTIONS))
NVPTX = register_gpu(
    "nvptx",
    "ll",
    nvptx_code,
    like="cuda",
    options=("mcpu", "mattr", "mtriple", "opt-level", *_OPTIONS),
    check=_check_nvptx,
    triple="nvptx64-nvidia-cuda",
    cpu="sm_70",
    attributes_text=_version_of_ptx,
)
