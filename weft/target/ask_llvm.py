"""A program of its own, because LLVM prints answers and ends the process over errors: compile LLVM IR.

Arguments are a triple, a processor (``help``: list them) and features; the IR comes from standard input.
"""

import sys

import llvmlite.binding as llvm


def main() -> None:
    """End with an error where LLVM does, and over intrinsics that it does not know."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    if sys.argv[2] == "help":  # LLVM prints its processors and features
        llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu="help")
        return
    module = llvm.parse_assembly(sys.stdin.read())
    module.verify()
    if "; Unknown intrinsic" in str(module):
        sys.exit("error: LLVM does not know the name")
    kind = llvm.Target.from_triple(sys.argv[1])
    kind.create_target_machine(cpu=sys.argv[2], features=sys.argv[3]).emit_assembly(module)


if __name__ == "__main__":
    main()
