"""What targets do with intrinsics that they have no instruction for: rules from a call to another expression."""

from collections.abc import Callable
from typing import Any

from weft.error import InvalidArgument
from weft.ir.scalar import CallIntrin, PrimExpr

Rule = Callable[[CallIntrin], PrimExpr | None]
_RULES: dict[tuple[str, str], tuple[int, Rule]] = {}


def register_intrin_lowering(
    op_name: str, target: str = "default", *, f: Rule | None = None, level: int = 10, override: bool = False
) -> Any:
    """Say how calls of an intrinsic are written on a kind of target.

    Parameters
    ----------
    op_name : str
        Such as ``"tir.sigmoid"``; it need not exist otherwise.
    target : str
        The kind, ``"llvm"``, or ``"default"`` for those without a rule of their own.
    f : callable, optional
        From the call to an expression of the same type, or to None where it has nothing to say. Without it, a
        decorator is returned.
    level : int
        Of several rules the one of the highest level holds.
    override : bool
        Whether to replace a rule of the same level.
    """

    def register(rule: Rule) -> Rule:
        known = _RULES.get((target, op_name))
        if known is not None and known[0] == level and not override:
            raise InvalidArgument(f"'{op_name}' has a rule on '{target}'", help="pass override=True")
        if known is None or known[0] <= level:
            _RULES[target, op_name] = (level, rule)
        return rule

    return register if f is None else register(f)


def register_intrin_rule(target: str, intrin: str, f: Rule | None = None, override: bool = False) -> Any:
    """Say the same in TVM's older form: the kind of target first, the intrinsic without ``tir.``."""
    name = intrin if "." in intrin else f"tir.{intrin}"
    return register_intrin_lowering(name, target, f=f, override=override)


def intrin_rule(op_name: str, target: str) -> Rule | None:
    """Return the rule for an intrinsic on a kind of target, else that of ``"default"``."""
    found = _RULES.get((target, op_name)) or _RULES.get(("default", op_name))
    return None if found is None else found[1]


def has_own_rules() -> bool:
    """Whether a user registered a rule (one of a level above 0)."""
    return any(level for level, _ in _RULES.values())
