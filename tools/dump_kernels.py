"""Write the LLVM IR of every kernel of some models: ``dump_kernels.py FOLDER TARGET MODEL.onnx ...``.

Runs with whatever ``weft`` is on the path, so that :mod:`kernels_diff` can run it with another commit's.
"""

import sys
from pathlib import Path

import weft
from weft import ir, tir


def dump(path: Path, folder: Path, target_text: str) -> None:
    """Write one file a kernel of the model at `path`."""
    folder.mkdir(parents=True, exist_ok=True)
    target = weft.target.Target(target_text)
    final = weft.relax.get_pipeline("default", target)(weft.frontend.onnx.from_onnx(path))
    for var, function in final.items():
        if isinstance(function, tir.PrimFunc):
            name = function.attrs.get("global_symbol") or var.name_hint
            module = ir.IRModule({name: function.with_attr("global_symbol", name)})
            scheduled = weft.relax.transform.schedule_tir(target=target)(module)
            (folder / f"{name}.ll").write_text(weft.target.get_source(scheduled, target))


def main() -> None:
    """Dump all models that the command line names."""
    folder, target = Path(sys.argv[1]), sys.argv[2]
    for model in map(Path, sys.argv[3:]):
        dump(model, folder / model.stem, target)


if __name__ == "__main__":
    main()
