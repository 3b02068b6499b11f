"""Tags of operations: what a schedule may take from how their elements are computed."""

ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"


def is_broadcast(tag: str) -> bool:
    """Whether a tag says element-wise or broadcasting."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((f"{ELEMWISE},", f"{BROADCAST},"))


def is_injective(tag: str) -> bool:
    """Whether a tag says that each element is made of at most one element of each operand."""
    return is_broadcast(tag) or tag == INJECTIVE or tag.startswith(f"{INJECTIVE},")
