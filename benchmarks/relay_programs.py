"""Programs with recursion, data types and dynamic shapes, written in Relay, and the same networks in PyTorch.

Each maker returns a module whose weights are those of a PyTorch network, so that results can be compared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.networks.transformer import HEAD, Layer
from weft import ir, relay

INPUT, HIDDEN, TREE_HIDDEN = 300, 512, 150
BERT_HIDDEN, BERT_LAYERS = 768, 12

LIST = """
type List[A] { Cons(A, List[A]), Nil, }
"""


class _Weights:
    """Constants of a text: `weights(array)` gives what stands for it."""

    def __init__(self) -> None:
        self.values: list[relay.Constant] = []

    def __call__(self, value: torch.Tensor | np.ndarray) -> str:
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else value
        self.values.append(relay.const(np.ascontiguousarray(array)))
        return f"meta[relay.Constant][{len(self.values) - 1}]"

    def parse(self, text: str) -> ir.IRModule:
        return relay.fromtext('#[version = "0.0.5"]\n' + text, init_meta_table={"relay.Constant": self.values})


# --- LSTM -------------------------------------------------------------------------------------------------------------

_ROWS = """
def @rows(%x: Tensor[(?, WIDE), float32], %i: int32, %rows: List[Tensor[(1, WIDE), float32]])
    -> List[Tensor[(1, WIDE), float32]] {
  if (%i == 0) { %rows } else {
    let %j = %i - 1;
    let %row = expand_dims(take(%x, %j, axis=0), axis=0);
    @rows(%x, %j, Cons(%row, %rows))
  }
}
def @stack(%rows: List[Tensor[(1, UNITS), float32]], %n: int32)
    -> (Tensor[(?, UNITS), float32], List[Tensor[(1, UNITS), float32]]) {
  if (%n == 1) {
    match? (%rows) {
      Cons(%row, %rest) => { (%row, %rest) },
    }
  } else {
    let %half = floor_divide(%n, 2);
    let %late = @stack(%rows, %n - %half);
    let %early = @stack(%late.1, %half);
    (concatenate((%early.0, %late.0), axis=0), %early.1)
  }
}
"""

_STEPS = """
def @steps_LAYER(%rows: List[Tensor[(1, WIDE), float32]], %h: Tensor[(1, UNITS), float32],
    %c: Tensor[(1, UNITS), float32], %done: List[Tensor[(1, UNITS), float32]])
    -> (List[Tensor[(1, UNITS), float32]], Tensor[(1, UNITS), float32]) {
  match (%rows) {
    Cons(%row, %rest) => {
      let %gates = split(nn.dense(%h, RECURRENT, units=WIDE) + %row, indices_or_sections=4, axis=1);
      let %next = sigmoid(%gates.1) * %c + sigmoid(%gates.0) * tanh(%gates.2);
      let %out = sigmoid(%gates.3) * tanh(%next);
      @steps_LAYER(%rest, %out, %next, Cons(%out, %done))
    },
    Nil => { (%done, %h) },
  }
}
def @layer_LAYER(%x: Tensor[(?, INPUTS), float32], %n: int32)
    -> (List[Tensor[(1, UNITS), float32]], Tensor[(1, UNITS), float32]) {
  let %projected = nn.dense(%x, PROJECTION, units=WIDE) + BIAS;
  @steps_LAYER(@rows(%projected, %n, Nil), ZERO, ZERO, Nil)
}
"""


def lstm(layers: int, inputs: int = INPUT, hidden: int = HIDDEN) -> tuple[ir.IRModule, nn.LSTM]:
    """An LSTM as a recursive function over the list of a sequence's projected tokens.

    ``main(tokens: (n, inputs), n: int32) -> (1, hidden)``, the last hidden state of the last layer.
    """
    torch.manual_seed(31)
    network = nn.LSTM(inputs, hidden, layers).eval()
    weights = _Weights()
    text = LIST + _ROWS
    for i in range(layers):
        of = {k: getattr(network, f"{k}_l{i}") for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        names = {
            "LAYER": str(i),
            "INPUTS": str(inputs if i == 0 else hidden),
            "RECURRENT": weights(of["weight_hh"]),
            "PROJECTION": weights(of["weight_ih"]),
            "BIAS": weights(of["bias_ih"] + of["bias_hh"]),
            "ZERO": weights(np.zeros((1, hidden), np.float32)),
        }
        text += _filled(_STEPS, names)
    body = "let %done_0 = @layer_0(%tokens, %n);\n"
    for i in range(1, layers):
        body += f"let %done_{i} = @layer_{i}(@stack(%done_{i - 1}.0, %n).0, %n);\n"
    text += f"def @main(%tokens: Tensor[(?, {inputs}), float32], %n: int32) {{ {body} %done_{layers - 1}.1 }}"
    return weights.parse(_filled(text, {"WIDE": str(4 * hidden), "UNITS": str(hidden)})), network


def _filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


# --- Tree-LSTM --------------------------------------------------------------------------------------------------------

_TREE = """
type Tree { Leaf(Tensor[(1, INPUTS), float32]), Branch(Tensor[(1, INPUTS), float32], Tree, Tree), }
def @inputs(%tree: Tree, %rest: List[Tensor[(1, INPUTS), float32]]) -> List[Tensor[(1, INPUTS), float32]] {
  match (%tree) {
    Leaf(%x) => { Cons(%x, %rest) },
    Branch(%x, %left, %right) => { Cons(%x, @inputs(%left, @inputs(%right, %rest))) },
  }
}
def @count(%xs: List[Tensor[(1, INPUTS), float32]], %n: int32) -> int32 {
  match (%xs) {
    Cons(_, %rest) => { @count(%rest, %n + 1) },
    Nil => { %n },
  }
}
def @stack(%xs: List[Tensor[(1, INPUTS), float32]], %n: int32)
    -> (Tensor[(?, INPUTS), float32], List[Tensor[(1, INPUTS), float32]]) {
  if (%n == 1) {
    match? (%xs) {
      Cons(%x, %rest) => { (%x, %rest) },
    }
  } else {
    let %half = floor_divide(%n, 2);
    let %first = @stack(%xs, %half);
    let %second = @stack(%first.1, %n - %half);
    (concatenate((%first.0, %second.0), axis=0), %second.1)
  }
}
def @node(%tree: Tree, %projected: Tensor[(?, GATES), float32], %at: int32)
    -> (Tensor[(1, UNITS), float32], Tensor[(1, UNITS), float32], int32) {
  match (%tree) {
    Leaf(_) => {
      let %gates = split(take(%projected, expand_dims(%at, axis=0), axis=0), indices_or_sections=4, axis=1);
      let %c = sigmoid(%gates.0) * tanh(%gates.2);
      (sigmoid(%gates.1) * tanh(%c), %c, %at + 1)
    },
    Branch(_, %left, %right) => {
      let %l = @node(%left, %projected, %at + 1);
      let %r = @node(%right, %projected, %l.2);
      let %own = split(take(%projected, expand_dims(%at, axis=0), axis=0), indices_or_sections=4, axis=1);
      let %both = nn.dense(concatenate((%l.0, %r.0), axis=0), RECURRENT, units=GATES);
      let %from = split(reshape(%both, newshape=[1, -1]), indices_or_sections=8, axis=1);
      let %c = sigmoid(%own.0 + %from.0 + %from.4) * tanh(%own.2 + %from.2 + %from.6)
        + sigmoid(%own.3 + %from.3) * %l.1 + sigmoid(%own.3 + %from.7) * %r.1;
      (sigmoid(%own.1 + %from.1 + %from.5) * tanh(%c), %c, %r.2)
    },
  }
}
def @main(%tree: Tree) {
  let %xs = @inputs(%tree, Nil);
  let %projected = nn.dense(@stack(%xs, @count(%xs, 0)).0, PROJECTION, units=GATES) + BIAS;
  @node(%tree, %projected, 0).0
}
"""


class TreeLSTM(nn.Module):
    """Child-sum Tree-LSTM (Tai, Socher and Manning, 2015) over trees ``(x, children)``, node by node."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.w_gates, self.u_gates = nn.Linear(inputs, 3 * hidden), nn.Linear(hidden, 3 * hidden, bias=False)
        self.w_forget, self.u_forget = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden, bias=False)

    def forward(self, tree: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x, children = tree
        gates = self.w_gates(x)
        kept: Any = 0.0
        if children:
            states = [self(child) for child in children]
            gates = gates + self.u_gates(torch.stack([h for h, _ in states]).sum(0))
            forget = self.w_forget(x)
            for h, c in states:
                kept = kept + torch.sigmoid(forget + self.u_forget(h)) * c
        i, o, u = torch.chunk(gates, 3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u) + kept
        return torch.sigmoid(o) * torch.tanh(c), c


def tree_lstm(inputs: int = INPUT, hidden: int = TREE_HIDDEN) -> tuple[ir.IRModule, TreeLSTM]:
    """A child-sum Tree-LSTM over binary trees; ``main(tree) -> (1, hidden)``, the root's hidden state.

    The inputs of all nodes are collected and projected by one product before the recursion, which multiplies the states
    of both children with the recurrent weights at once.
    """
    torch.manual_seed(32)
    network = TreeLSTM(inputs, hidden).eval()
    weights = _Weights()
    names = {
        "INPUTS": str(inputs),
        "UNITS": str(hidden),
        "GATES": str(4 * hidden),
        "PROJECTION": weights(torch.cat([network.w_gates.weight, network.w_forget.weight])),
        "BIAS": weights(torch.cat([network.w_gates.bias, network.w_forget.bias])),
        "RECURRENT": weights(torch.cat([network.u_gates.weight, network.u_forget.weight])),
    }
    return weights.parse(LIST + _filled(_TREE, names)), network


def random_tree(rng: np.random.Generator, leaves: int, inputs: int = INPUT) -> Any:
    """A binary tree ``(x, children)`` with an input at every node."""
    x = rng.standard_normal((1, inputs), np.float32)
    if leaves == 1:
        return x, ()
    left = int(rng.integers(1, leaves))
    return x, (random_tree(rng, left, inputs), random_tree(rng, leaves - left, inputs))


def map_tree(leaf: Callable[[np.ndarray], Any], tree: Any) -> Any:
    """A tree with another kind of tensors."""
    x, children = tree
    return leaf(x), tuple(map_tree(leaf, c) for c in children)


# --- BERT -------------------------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """BERT-base without its embeddings: (1, n, hidden) to (1, n, hidden)."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(hidden, norm_first=False, joint=False) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)[0]
        return x


def bert(layers: int = BERT_LAYERS, hidden: int = BERT_HIDDEN) -> tuple[ir.IRModule, Encoder]:
    """The encoder as one function, ``main(x: (1, ?, hidden)) -> (1, ?, hidden)``."""
    torch.manual_seed(33)
    network = Encoder(layers, hidden).eval()
    x = relay.var("x", shape=(1, relay.Any(), hidden))
    out: Any = relay.reshape(x, (-1, hidden))
    for layer in network.layers:
        out = _encoder_layer(out, layer, hidden)
    return ir.IRModule({"main": relay.Function([x], relay.expand_dims(out, axis=0))}), network


def _weight(value: torch.Tensor) -> relay.Constant:
    return relay.const(value.detach().numpy())


def _linear(x: Any, layer: nn.Linear) -> Any:
    return relay.nn.bias_add(relay.nn.dense(x, _weight(layer.weight)), _weight(layer.bias), axis=-1)


def _norm(x: Any, layer: nn.LayerNorm) -> Any:
    return relay.nn.layer_norm(x, _weight(layer.weight), _weight(layer.bias), axis=-1, epsilon=layer.eps)


def _encoder_layer(x: Any, layer: Layer, hidden: int) -> Any:
    attention, heads = layer.attention, hidden // HEAD

    def split(part: nn.Linear, axes: tuple[int, ...]) -> Any:
        return relay.transpose(relay.reshape(_linear(x, part), (-1, heads, HEAD)), axes)

    query, key = (split(part, (1, 0, 2)) for part in attention.qkv[:2])
    value = split(attention.qkv[2], (1, 2, 0))  # batch_matmul takes its second operand transposed
    weights = relay.nn.softmax(relay.nn.batch_matmul(query, key) * relay.const(HEAD**-0.5), axis=-1)
    context = relay.transpose(relay.nn.batch_matmul(weights, value), (1, 0, 2))
    x = _norm(x + _linear(relay.reshape(context, (-1, hidden)), attention.project), layer.norm1)
    up = _linear(x, layer.up)
    half = relay.const(0.5)
    gelu = up * (half + half * relay.erf(up * relay.const(2**-0.5)))
    return _norm(x + _linear(gelu, layer.down), layer.norm2)
