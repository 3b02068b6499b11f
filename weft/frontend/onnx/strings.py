"""Tensors of strings: what moves texts is done on their numbers, as ever; what reads them is done by the host."""

from itertools import pairwise
from typing import Any

import numpy as np

from weft.frontend.onnx.compose import microsoft
from weft.frontend.onnx.learned import constant_list, encoded
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.runtime.host import Kind


def _kind(node: Node, rank: int) -> Kind:
    return Kind("tensor", "string", rank)


@converter("StringConcat")
def _concat(node: Node) -> Any:
    return node.host("StringConcat", node.inputs, [_kind(node, max(node.ndim(0), node.ndim(1)))])


@converter("RegexFullMatch")
def _full_match(node: Node) -> Any:
    return node.host("RegexFullMatch", node.inputs, [Kind("tensor", "bool", node.ndim())], pattern=node.attr("pattern"))


@converter("StringSplit")
def _split(node: Node) -> Any:
    outs = [_kind(node, node.ndim() + 1), Kind("tensor", "int64", node.ndim())]
    attrs = {"delimiter": node.attr("delimiter", ""), "maxsplit": node.attr("maxsplit", -1)}
    return node.host("StringSplit", node.inputs, outs, **attrs)


@converter("StringNormalizer")
def _normalize(node: Node) -> Any:
    case = node.attr("case_change_action", "NONE")
    if case not in ("LOWER", "UPPER", "NONE"):
        node.error("an unknown change of case", expected="LOWER, UPPER or NONE", found=case)
    attrs = {"sensitive": node.attr("is_case_sensitive", 0), "stopwords": node.attr("stopwords", [])}
    return node.host("StringNormalizer", node.inputs, [_kind(node, node.ndim())], case=case, **attrs)


@converter("TfIdfVectorizer")
def _tfidf(node: Node) -> Any:
    pool = node.attr("pool_strings" if node.logical() == "string" else "pool_int64s", [])
    mode = node.attr("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        node.error("an unknown mode", expected="TF, IDF or TFIDF", found=mode)
    low, high = node.attr("min_gram_length"), node.attr("max_gram_length")
    columns = np.array(node.attr("ngram_indexes"), np.int64)
    _check_grams(node, len(pool), low, high, columns)
    keys, numbers = np.unique(np.asarray(constant_list(node, pool, node.logical()).array), return_inverse=True)
    edges, places = _gram_tree(numbers, len(keys), node.attr("ngram_counts"), columns)
    weights = np.ones(columns.max(initial=-1) + 1, np.float32)
    weights[columns] = node.attr("weights") or 1
    tables = map(Value.of_array, (np.arange(len(keys)), np.array(-1)))
    items = encoded(node, Value.of_array(keys).as_kind(node.logical()), *tables)
    given, out = [items, *map(Value.of_array, (edges, places, weights))], Kind("tensor", "float32", max(node.ndim(), 1))
    attrs = {"count": len(keys), "lengths": [low, high], "skipped": node.attr("max_skip_count"), "mode": mode}
    return node.host("CountGrams", given, [out], **attrs)


def _gram_tree(pool: np.ndarray, count: int, starts: list[int], columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the beginnings of a pool's n-grams as nodes of a tree, and return its edges and the nodes' columns.

    The pool holds numbers below `count`, its n-grams of `n` items from ``starts[n - 1]`` on.
    """
    grams = [pool[a:b].reshape(-1, n) for n, (a, b) in enumerate(pairwise([*starts, len(pool)]), 1)]
    nodes, edges, size = [g[:, 0] + 1 for g in grams], [np.empty(0, np.int64)], count + 1
    for n in range(1, len(grams)):
        wanted = [node * count + g[:, n] for node, g in zip(nodes[n:], grams[n:], strict=True)]
        edges.append(np.unique(np.concatenate(wanted)))
        nodes[n:] = [np.searchsorted(edges[-1], w) + size for w in wanted]
        size += len(edges[-1])
    places = np.full(size, -1)
    places[np.concatenate(nodes)] = columns
    return np.concatenate(edges), places


def _check_grams(node: Node, size: int, low: int, high: int, places: np.ndarray) -> None:
    """Check that the parts of a pool lie in it one after another, with a place in the result for each n-gram."""
    counts, weights = node.attr("ngram_counts"), node.attr("weights", [])
    parts = [b - a for a, b in pairwise([*counts, size])]
    grams = sum(n // k for k, n in enumerate(parts, 1))
    ordered = 1 <= low <= high <= len(counts) and node.attr("max_skip_count") >= 0
    whole = counts[:1] == [0] and not any(n < 0 or n % k for k, n in enumerate(parts, 1))
    placed = len(places) == grams and places.min(initial=0) >= 0 and len(weights) in (0, grams)
    found = f"{len(places)} places, {len(weights)} weights"
    for holds, what, expected, is_so in (
        (ordered, "wrong lengths of n-grams", f"1 <= least <= greatest <= {len(counts)}", f"{low}, {high}"),
        (whole, "'ngram_counts' does not divide the pool", f"starts from 0 to {size}", f"{counts}"),
        (placed, "places or weights are not those of the n-grams", f"{grams}, at least 0", found),
    ):
        if not holds:
            node.error(f"{what}", expected=expected, found=is_so)


@microsoft("Tokenizer", attributes="mark mincharnum pad_value separators tokenexp", inputs=(1, 1))
def _tokenizer(node: Node) -> Any:
    separators, expression, least = node.attr("separators", []), node.attr("tokenexp", ""), node.attr("mincharnum", 1)
    if bool(separators) == bool(expression):
        node.error("one of 'separators' and 'tokenexp' says where tokens are", found=f"{separators}")
    if least < 1 or (least > 1 and (expression == "." or separators == [""])) or node.ndim() > 2:
        node.error(
            "texts in one or two dimensions, tokens of at least one character, or of exactly one",
            found=f"'mincharnum' {least}, {node.ndim()} dimensions",
        )
    attrs = {"mark": node.attr("mark", 0), "pad": node.attr("pad_value", ""), "least": least}
    kind = _kind(node, node.ndim() + 1)
    return node.host("Tokenizer", node.inputs, [kind], separators=separators, expression=expression, **attrs)


@converter("ImageDecoder")
def _decode(node: Node) -> Any:
    form = node.attr("pixel_format", "RGB")
    if form not in ("RGB", "BGR", "Grayscale"):
        node.error("an unknown format of pixels", expected="RGB, BGR or Grayscale", found=form)
    return node.host("ImageDecoder", node.inputs, [Kind("tensor", "uint8", 3)], pixel_format=form)
