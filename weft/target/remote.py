"""The target of another machine's CPU, from what that machine says of itself.

A server's ``weft.machine_facts`` returns lines of ``name=value``: ``architecture``, ``features`` (LLVM's names), and
fields of :class:`weft.machine.Machine`.
"""

from typing import Any

from weft.error import InvalidArgument
from weft.machine import OPTION_OF
from weft.runtime import Device
from weft.target.triple import triple_of


def options_of_device(device: Device) -> dict[str, Any]:
    """The options of a target ``llvm`` for the CPU of a session's device, ``session.cpu()``.

    Raises
    ------
    InvalidArgument
        When the machine does not describe itself.
    """
    try:
        describe = device._rpc_sess.get_function("weft.machine_facts")  # type: ignore[attr-defined]
    except InvalidArgument as e:
        raise InvalidArgument(
            "the other machine does not describe itself",
            expected="a server of Weft",
            found=str(device),
            help="name the target: 'aarch64-linux-gnu'",
        ) from e
    return options_from_facts(str(describe()))


def options_from_facts(text: str) -> dict[str, Any]:
    """The options of a target for a machine that describes itself.

    Parameters
    ----------
    text : str
        Lines of ``name=value``. Names that are not known are left out: a newer server may say more.

    Raises
    ------
    InvalidArgument
        When the architecture is missing or not known, or a number is none.
    """
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    triple = triple_of(facts.get("architecture", ""))
    if triple is None:
        raise InvalidArgument("a machine of an architecture that is not known", found=repr(facts.get("architecture")))
    features = [f for f in facts.get("features", "").split(",") if f]
    bits = facts.get("vector_bits", "")
    if triple.startswith("riscv64") and "v" in features and bits.isdigit():
        features.append(f"zvl{bits}b")
        del facts["vector_bits"]  # follows from the feature
    options: dict[str, Any] = {"kind": "llvm", "mtriple": triple}
    if features:
        options["mattr"] = ",".join(f"+{f}" for f in features)
    for field, option in OPTION_OF.items():
        value = facts.get(field)
        if value is None:
            continue
        if not value.isdigit() or int(value) == 0:
            raise InvalidArgument(
                f"the machine says something wrong of its '{field}'", expected="a positive number", found=repr(value)
            )
        options[option] = int(value)
    return options
