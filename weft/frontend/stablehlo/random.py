"""Random bits from a state: Philox 4x32 with ten rounds, which is XLA's default (Salmon et al. 2011)."""

import math
from typing import Any

from weft import ir
from weft.frontend.stablehlo.importer import CONVERTERS, Node

_MULTIPLIERS, _STEPS, _ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10


class _Words:
    """Words of 32 bits, each in a tensor of uint64, so that their products have room."""

    def __init__(self, node: Node) -> None:
        self.op, self.scalar = node.op, lambda value: node.graph.scalar(value, "uint64")

    def low(self, x: Any) -> Any:
        """The lower half."""
        return self.op("bitwise_and", x, self.scalar(0xFFFFFFFF))

    def high(self, x: Any) -> Any:
        """The upper half."""
        return self.op("right_shift", x, self.scalar(32))

    def philox(self, x: list[Any], key: list[Any]) -> list[Any]:
        """Four words that a counter of four gives under a key of two."""
        for i in range(_ROUNDS):
            step = [self.low(self.op("add", k, self.scalar(i * s))) for k, s in zip(key, _STEPS, strict=True)]
            a, b = (self.op("multiply", w, self.scalar(m)) for w, m in zip((x[0], x[2]), _MULTIPLIERS, strict=True))
            first, third = (
                self.op("bitwise_xor", self.op("bitwise_xor", self.high(product), word), k)
                for product, word, k in ((b, x[1], step[0]), (a, x[3], step[1]))
            )
            x = [first, self.low(b), third, self.low(a)]
        return x


@CONVERTERS.on("stablehlo.rng_bit_generator")
def _bits(node: Node) -> Any:
    """The state is a key and a counter of one or two words of 64 bits, whose upper one may be the key."""
    made, way = node.source.types[1], node.attr("algorithm", node.attr("rng_algorithm"))
    if way not in ("DEFAULT", "PHILOX") or "int" not in made.dtype or -1 in made.shape or node.shape not in ([2], [3]):
        node.unsupported(
            "another algorithm, type or state",
            expected="DEFAULT or PHILOX, integers, 2 or 3 words",
            found=f"{way}, {made.dtype}, {node.shape}",
        )
    words, graph, bits = _Words(node), node.graph, ir.DataType(made.dtype).bits
    key, low, high = (graph.reshape(graph.narrow(node.x, 0, i, 1), []) for i in (0, 1, node.shape[0] - 1))
    high = key if node.shape == [2] else high
    count, each = math.prod(made.shape), 4 if bits <= 32 else 2
    blocks = -(-count // each)

    def moved(by: Any) -> list[Any]:
        """The counter so many steps later."""
        found = node.op("add", low, by)
        return [found, node.op("add", high, graph.astype(node.op("less", found, low), "uint64"))]

    counter = [half(word) for word in moved(graph.arange(blocks, "uint64")) for half in (words.low, words.high)]
    x = words.philox(counter, [words.low(key), words.high(key)])
    if each == 2:
        x = [node.op("bitwise_or", a, node.op("left_shift", b, words.scalar(32))) for a, b in (x[:2], x[2:])]
    found = graph.concat([graph.reshape(graph.astype(v, f"uint{bits}"), [blocks, 1]) for v in x], 1)
    found = graph.narrow(graph.reshape(found, [blocks * each]), 0, 0, count)
    state = [key, *moved(words.scalar(blocks))][: node.shape[0]]
    return [
        graph.concat([graph.reshape(v, [1]) for v in state], 0),
        graph.reshape(graph.astype(found, made.dtype), list(made.shape)),
    ]
