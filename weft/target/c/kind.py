"""The kind ``c``: CPUs, by the system's C compiler."""

from weft.target.c.build import build_c, source_c
from weft.target.kind import TargetKind, register_target_kind
from weft.target.llvm.kind import compile_llvm
from weft.target.llvm.object import emit_services

C = register_target_kind(
    TargetKind(
        "c",
        build=build_c,
        source=source_c,
        source_format="c",
        compile=compile_llvm,  # kernels of a model lie beside what LLVM makes of the model
        services=emit_services,
        options=("mcpu", "march", "keys", "device", "model", "host", "tag"),
    )
)
