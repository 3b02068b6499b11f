"""MLIR's bytecode to text, by a process of its own that runs this file: damaged bytes can end MLIR's reader."""

import subprocess
import sys

from weft.error import ParseError, require
from weft.runtime.process import command

_DIALECTS = ("stablehlo", "chlo", "sdy")


def text_of(data: bytes) -> str:
    """Return the text of bytecode, a portable artifact's or a module's own.

    Raises
    ------
    ParseError
        With what MLIR says of it.
    """
    require("jaxlib.mlir.ir", extra="jax")
    made = subprocess.run(command(__file__, watched=False), input=data, capture_output=True)
    if made.returncode:
        said = [line for line in made.stderr.decode(errors="replace").splitlines() if "error: " in line]
        raise ParseError("the bytecode cannot be read", found="; ".join(said) or f"MLIR ended with {made.returncode}")
    return made.stdout.decode()


def main() -> None:
    """Answer bytecode on standard input with its text."""
    mlir, *dialects = (require(f"jaxlib.mlir.{x}", extra="jax") for x in ("ir", *map("dialects.{}".format, _DIALECTS)))
    registry = mlir.DialectRegistry()
    require("jaxlib.mlir._mlir_libs._jax_mlir_ext", extra="jax").register_dialects(registry)
    with mlir.Context() as context:
        context.append_dialect_registry(registry)
        for dialect in dialects:
            dialect.register_dialect(context)
        try:
            made = dialects[0].deserialize_portable_artifact(context, sys.stdin.buffer.read())
        except ValueError:  # MLIR has written why
            sys.exit(1)
        sys.stdout.buffer.write(str(made).encode())


if __name__ == "__main__":
    main()
