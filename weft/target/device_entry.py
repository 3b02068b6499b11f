"""What the entry of a host function does for the device of its arguments, whatever language it is written in."""

from weft import ir, tir

CPU = 1
"""DLPack's number of the device that functions run on where the attribute ``tir.device_type`` says nothing else."""


def device_type(func: tir.PrimFunc) -> int:
    """Return the kind of device that the tensor arguments of a function lie on, as DLPack numbers it."""
    return int(func.attrs.get("tir.device_type", CPU))


def bind_device(func: tir.PrimFunc) -> tuple[ir.Var | None, tir.Stmt]:
    """Return the variable that takes the number of the arguments' device, if it matters, and the body that sets it."""
    kind = device_type(func)
    if kind == CPU or not func.buffer_map:
        return None, func.body
    device = ir.Var("device_id", "int32")
    return device, tir.seq(tir.Evaluate(tir.call_packed("__tvm_set_device", kind, device)), func.body)
