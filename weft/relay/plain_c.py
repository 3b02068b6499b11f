"""Models as plain C: one function on the caller's memory, which needs a C compiler, libc and libm, and nothing else.

Relax or Relay with constant shapes goes in, the text of a source file and its header come out. The function calls the
kernels in order on one workspace; weights are constants of the file. There is no runtime, no thread, no other state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft import error, ir, relax, tir, tune
from weft.relax.pipeline import graph_passes
from weft.relay.aot import tensor_places
from weft.relay.build_module import lower_to_graph
from weft.relay.graph import ALIGNMENT, VIEW, Entry, KernelGraph, graph_of, plan_graph_memory
from weft.runtime import write_file
from weft.target import Target, TargetLike
from weft.target.c import CALLS, TYPES, emit_c

_WORDS_A_LINE = 6


class PlainC(NamedTuple):
    """What :func:`plain_c` makes."""

    source: str
    header: str

    def write(self, path: str | Path) -> None:
        """Write ``model.c``, and ``model.h`` beside it."""
        write_file(path, self.source)
        write_file(Path(path).with_suffix(".h"), self.header)


def plain_c(mod: ir.IRModule, name: str = "model", target: TargetLike = "c") -> PlainC:
    """Write the function ``main`` of a module as C.

    Parameters
    ----------
    mod : IRModule
        Relax, as the importers make it, or Relay of first order; all shapes are constant.
    name : str
        Of the C function ``int name(void* workspace, inputs..., outputs...)``, and of the header.
    target : Target or str
        The target c, with options of the processor if wanted.

    Raises
    ------
    LoweringError
        When a shape is symbolic, or something is called that is no kernel.
    CodegenError
        When a kernel uses what plain C does not have, such as functions of the runtime.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise error.InvalidArgument(
            "the model's name is a function of C", expected="letters, digits and _", found=repr(name)
        )
    made = target if isinstance(target, Target) else Target(target)
    lowered, graph = _lowered(mod, made)
    return _Writer(graph, lowered, made, name).files()


def _lowered(mod: ir.IRModule, target: Target) -> tuple[ir.IRModule, KernelGraph]:
    if not isinstance(mod["main"], ir.Function):
        return lower_to_graph(mod, target)
    lowered = ir.Sequential(graph_passes(target, check_indices=False), name="plain_c")(mod)
    return lowered, graph_of(lowered)


class _Writer:
    """The text of one model."""

    def __init__(self, graph: KernelGraph, kernels: ir.IRModule, target: Target, name: str) -> None:
        self.graph, self.kernels, self.target, self.name = graph, kernels, target, name
        self.inputs = [Entry(i) for i, n in enumerate(graph.nodes) if n.function is None and n.name not in graph.params]
        constants = [Entry(i) for i, n in enumerate(graph.nodes) if n.name in graph.params and n.function is None]
        self.constants = {e: f"weight{i}" for i, e in enumerate(constants)}
        names = _unique(
            [graph.nodes[e.node].name for e in self.inputs] + [f"output{i}" for i in range(len(graph.heads))]
        )
        self.input_names, self.output_names = names[: len(self.inputs)], names[len(self.inputs) :]
        self.given = dict(zip(self.inputs, self.input_names, strict=True))
        for head, output in zip(graph.heads, self.output_names, strict=True):
            source = graph.source(head)
            if not graph.is_input(source):
                self.given.setdefault(source, output)
        self.places, self.n_bytes = tensor_places(graph, plan_graph_memory(graph), set(self.given))

    def files(self) -> PlainC:
        """Write both files."""
        kernels = emit_c(self.scheduled(), self.target, entries=False)
        if CALLS in kernels:
            raise error.CodegenError(
                "a kernel calls a packed function, which plain C does not have", help="compile the model to a library"
            )
        parts = [f'#include "{self.name}.h"', "#include <string.h>", kernels]
        parts += [self.weights(e, n) for e, n in self.constants.items()]
        parts += ["", *self.function(), ""]
        return PlainC("\n".join(parts), self.declarations())

    def scheduled(self) -> list[tir.PrimFunc]:
        """The kernels that the graph calls, as schedule rules leave them."""
        records = tune.Tuned(tune.current_database(), self.target)
        named = {
            f.attrs.get("global_symbol") or v.name_hint: f
            for v, f in self.kernels.items()
            if isinstance(f, tir.PrimFunc)
        }
        out: list[tir.PrimFunc] = []
        for name in dict.fromkeys(n.function for n in self.graph.nodes if n.function not in (None, VIEW)):
            if name not in named:
                raise error.LoweringError(
                    f"the model calls '{name}', which is no kernel of its own",
                    help="compile it to a library, which may call such functions",
                )
            out.append(relax.schedule_kernel(named[name], name, self.target, records))
        return out

    def weights(self, entry: Entry, name: str) -> str:
        """Write a constant as words, which are exact for every dtype."""
        data = np.ascontiguousarray(self.graph.params[self.graph.nodes[entry.node].name].numpy()).tobytes()
        words = np.frombuffer(data + bytes(-len(data) % 8 or 8 * (not data)), "<u8")
        lines = (
            ", ".join(f"0x{w:x}" for w in words[i : i + _WORDS_A_LINE].tolist())
            for i in range(0, len(words), _WORDS_A_LINE)
        )
        kept = "static const uint64_t __attribute__((aligned(64)))"
        return f"{kept} {name}[{len(words)}] = {{\n  " + ",\n  ".join(lines) + "};"

    def function(self) -> Iterator[str]:
        """Write the function: kernels in order, then what is copied out."""
        yield f"{self.prototype()} {{"
        if self.n_bytes:
            yield "  char* const own = workspace ? 0 : (char*)weft_alloc(" + f"{self.name.upper()}_WORKSPACE_BYTES);"
            yield "  char* const at = workspace ? (char*)workspace : own;"
            yield "  if (!at) return -1;"
        yield "  int failed = 0;"
        for k, node in enumerate(self.graph.nodes):
            if node.function in (None, VIEW):
                continue
            operands = [self.address(e) for e in (*node.inputs, *(Entry(k, i) for i in range(len(node.outputs))))]
            yield f"  if (!failed) failed = {node.function}_impl({', '.join(operands)});"
        for head, output in zip(self.graph.heads, self.output_names, strict=True):
            source, size = self.graph.source(head), self.graph.n_bytes(head)
            if self.given.get(source) != output and size:
                yield f"  if (!failed) memcpy({output}, {self.address(head)}, {size});"
        if self.n_bytes:
            yield "  free(own);"
        yield "  return failed;"
        yield "}"

    def address(self, entry: Entry) -> str:
        """Where a tensor lies."""
        source = self.graph.source(entry)
        name = self.given.get(source) or self.constants.get(source)
        return f"(void*){name}" if name is not None else f"(void*)(at + {self.places[source]})"

    def prototype(self) -> str:
        """The function's declaration."""
        params = ["void* workspace"]
        params += [f"const {self.ctype(e)}* {n}" for e, n in zip(self.inputs, self.input_names, strict=True)]
        params += [f"{self.ctype(e)}* {n}" for e, n in zip(self.graph.heads, self.output_names, strict=True)]
        return f"int {self.name}({', '.join(params)})"

    def ctype(self, entry: Entry) -> str:
        """The C type of elements; bits for dtypes that C lacks."""
        dtype = ir.DataType(self.graph.type_of(entry)[1])
        return "uint8_t" if dtype == "bool" else TYPES.get(str(dtype), f"uint{8 * dtype.itemsize}_t")

    def declarations(self) -> str:
        """Write the header."""
        tensors = [
            *zip(self.inputs, self.input_names, strict=True),
            *zip(self.graph.heads, self.output_names, strict=True),
        ]
        about = [
            f" *   {n}: {dtype} [{', '.join(map(str, shape))}]"
            for e, n in tensors
            for shape, dtype in [self.graph.type_of(e)]
        ]
        guard = f"{self.name.upper()}_H"
        return "\n".join(
            [
                f"#ifndef {guard}",
                f"#define {guard}",
                "#include <stdint.h>",
                "",
                "#ifdef __cplusplus",
                'extern "C" {',
                "#endif",
                "",
                f"#define {self.name.upper()}_WORKSPACE_BYTES {self.n_bytes}",
                "",
                "/* Tensors are contiguous:",
                *about,
                f" * workspace: {self.name.upper()}_WORKSPACE_BYTES at a multiple of {ALIGNMENT}, of this call alone;",
                " * NULL takes them from the heap. Returns 0, or another number where there is no memory.",
                " * May be called from several threads. */",
                f"{self.prototype()};",
                "",
                "#ifdef __cplusplus",
                "}",
                "#endif",
                f"#endif  /* {guard} */",
                "",
            ]
        )


def _unique(names: Sequence[str]) -> list[str]:
    """Make names of C, no two of them the same, none one of the function's own or a word of C."""
    taken = {"workspace", "own", "at", "failed", *_WORDS}
    out: list[str] = []
    for name in names:
        clean = re.sub(r"\W", "_", name, flags=re.ASCII)
        clean = clean if clean and not clean[0].isdigit() else f"x{clean}"
        unique, n = clean, 0
        while unique in taken or re.fullmatch(r"weight\d+|\w+_impl", unique):
            n += 1
            unique = f"{clean}_{n}x"
        taken.add(unique)
        out.append(unique)
    return out


_WORDS = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile
    while asm bool class template this new delete private public namespace operator free memcpy
    """.split()
)
