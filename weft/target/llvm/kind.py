"""The kind ``llvm``: CPUs, by LLVM's code generators."""

from weft import error, ir, runtime, tir
from weft.target.cpu import check_cpu
from weft.target.kind import TargetKind, register_target_kind
from weft.target.llvm.jit import load_objects
from weft.target.llvm.object import compile_ir, emit_assembly, emit_bitcode, emit_ir, emit_object, emit_services
from weft.target.llvm.subroutine import calls_functions
from weft.target.target import Target
from weft.tir.transform.make_packed_api import PREFIX

_FORMATS = {"": emit_ir, "ll": emit_ir, "asm": emit_assembly, "s": emit_assembly, "bc": emit_bitcode}


def compile_llvm(func: tir.PrimFunc, target: Target, linkage: str = "internal", *, beside: bool = False) -> bytes:
    """Compile one scheduled function to an object file that exports ``__tvm_ffi_<global_symbol>``."""
    return emit_object([target.kind.lower(func, target)], target, linkage=linkage, beside=beside)


def _functions(mod: ir.IRModule) -> list[tir.PrimFunc]:
    return [f for _, f in mod.items() if isinstance(f, tir.PrimFunc)]


def _build(mod: ir.IRModule, target: Target) -> runtime.Module:
    functions = _functions(mod)
    names = [str(f.attrs["global_symbol"]).removeprefix(PREFIX) for f in functions]
    if any(map(calls_functions, functions)):  # then they are one object
        return load_objects([emit_object([target.kind.lower(f, target) for f in functions], target)], names)
    if len(functions) == 1:
        return load_objects([compile_llvm(functions[0], target)], names)
    return load_objects([*(compile_llvm(f, target, beside=True) for f in functions), emit_services(target)], names)


def _source(mod: ir.IRModule, target: Target, fmt: str) -> str | bytes:
    if fmt not in _FORMATS:
        raise error.CodegenError(f"there is no source of kind '{fmt}'", expected="'ll', 'asm' or 'bc'")
    functions = sorted(_functions(mod), key=lambda f: str(f.attrs["global_symbol"]))
    return _FORMATS[fmt]([target.kind.lower(f, target) for f in functions], target)


def _check(target: Target) -> None:
    """Refuse models and features that LLVM does not know; ``-mcpu=native`` is this machine."""
    if target.attrs.get("mcpu") == "native":
        del target.attrs["mcpu"]
    if "mcpu" in target.attrs or "mattr" in target.attrs:
        on, off = target.named_features()
        check_cpu(target.triple, target.attrs.get("mcpu"), (*on, *off))


LLVM = register_target_kind(
    TargetKind(
        "llvm",
        build=_build,
        source=_source,
        source_format="ll",
        compile=compile_llvm,
        services=emit_services,
        check=_check,
        options=tuple(
            (
                "mcpu mattr mtriple mabi matrix-tiles opt-level keys device model host system-lib tag libs "
                "target_device_type jit cl-opt mfloat-abi vector-width fast-math num-cores"
            ).split()
        ),
    )
)
runtime.register_object_loader(lambda objects, names=(): load_objects(list(objects), list(names)))


def _load(code: bytes) -> runtime.Module:
    """Make a module of LLVM IR."""
    compiled, names = compile_ir(code)
    module = load_objects([compiled], names)
    module.set_source(lambda fmt: code if fmt == "bc" else code.decode(errors="replace"))
    return module


runtime.register_file_loader("ll", _load)
runtime.register_file_loader("bc", _load)
