"""How much memory functions allocate, as their calls of allocation say it."""

from math import prod
from typing import Any

from weft import ir
from weft.relax.rewriter import all_bindings

_TENSORS = {
    "relax.builtin.alloc_tensor": 0,
    "relax.memory.alloc_tensor": 2,
}  # where the shape stands among the operands


def estimate_memory_usage(mod: ir.IRModule | ir.Function) -> str:
    """Say how much memory each function of a module allocates without memory planning and with it.

    Each ``builtin.alloc_tensor``, ``memory.alloc_storage`` and ``memory.alloc_tensor`` counts once, whatever branch it
    stands in, and no function counts those that it calls. A GB is 2**30 bytes.
    """
    funcs = [("foo", mod)] if isinstance(mod, ir.Function) else [(v.name_hint, f) for v, f in mod.items()]
    found = [f"- Function {name}:\n{_of_function(f)}\n" for name, f in funcs if isinstance(f, ir.Function)]
    return "Memory usage estimation:\n" + "".join(found) if found else ""


def _of_function(func: ir.Function) -> str:
    single: list[int] = []
    planned: list[int] = []
    dynamic = 0
    for value in (b.value for b in all_bindings(func)):
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
            continue
        name, args = value.op.name, list[Any](value.args)
        if name == "relax.memory.alloc_storage":
            planned.append(ir.as_int(args[0].values[0]) or 0)
        elif name in _TENSORS:
            shape, dtype = args[_TENSORS[name] :][:2]
            counts = [ir.as_int(d) for d in shape.values]
            if None in counts:
                dynamic += 1
                continue
            kind = ir.DataType(dtype.value)
            single.append(prod(c for c in counts if c is not None) * ((kind.bits + 7) // 8) * kind.lanes)
            planned += single[-1:] if name == "relax.builtin.alloc_tensor" else []
    sizes = [
        f"there are {len(s)} constant-size memory allocation(s) with total size {sum(s) / 2**30:.4} GB"
        for s in (single, planned)
    ]
    other = f", and {dynamic} dynamic-size allocation(s)" if dynamic else ""
    lines = [f" * Without memory planning, {sizes[0]}{other}.", f" * With memory planning, {sizes[1]}."]
    if any(single):
        lines.append(f" * Memory planning reduces constant memory size to {sum(planned) / sum(single):.1%}.")
    return "\n".join(lines)
