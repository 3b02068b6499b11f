"""Tensors of strings: what moves texts is done on their numbers, as ever; what reads them is done by the host."""

from itertools import pairwise
from typing import Any

from weft.frontend.onnx.compose import microsoft
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
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
        node.error("StringNormalizer: an unknown change of case", expected="LOWER, UPPER or NONE", found=case)
    return node.host(
        "StringNormalizer",
        node.inputs,
        [_kind(node, node.ndim())],
        case=case,
        sensitive=node.attr("is_case_sensitive", 0),
        stopwords=node.attr("stopwords", []),
    )


@converter("TfIdfVectorizer")
def _tfidf(node: Node) -> Any:
    pool = node.attr("pool_strings") if node.attr("pool_strings") else node.attr("pool_int64s", [])
    mode = node.attr("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        node.error("TfIdfVectorizer: an unknown mode", expected="TF, IDF or TFIDF", found=mode)
    attrs = {
        name: node.attr(name)
        for name in ("max_gram_length", "max_skip_count", "min_gram_length", "ngram_counts", "ngram_indexes")
    }
    _check_grams(node, len(pool), **attrs)
    out = Kind("tensor", "float32", max(node.ndim(), 1))
    return node.host(
        "TfIdfVectorizer", node.inputs, [out], pool=pool, mode=mode, weights=node.attr("weights", []), **attrs
    )


def _check_grams(node: Node, size: int, **attrs: Any) -> None:
    """Check that the parts of a pool lie in it one after another, with a place in the result for each n-gram."""
    low, high, counts, places = (
        attrs[k] for k in ("min_gram_length", "max_gram_length", "ngram_counts", "ngram_indexes")
    )
    if not 1 <= low <= high <= len(counts) or attrs["max_skip_count"] < 0:
        node.error(
            "TfIdfVectorizer: wrong lengths of n-grams",
            expected=f"1 <= least <= greatest <= {len(counts)}",
            found=f"{low}, {high}",
        )
    parts = [b - a for a, b in pairwise([*counts, size])]
    if counts[0] != 0 or any(n < 0 or n % k for k, n in enumerate(parts, 1)):
        node.error(
            "TfIdfVectorizer: 'ngram_counts' does not divide the pool",
            expected=f"starts from 0 to {size}",
            found=str(counts),
        )
    grams = sum(n // k for k, n in enumerate(parts, 1))
    weights = node.attr("weights", [])
    if len(places) != grams or min(places, default=0) < 0 or (weights and len(weights) != grams):
        node.error(
            "TfIdfVectorizer: places or weights are not those of the n-grams",
            expected=f"{grams}, at least 0",
            found=f"{len(places)} places, {len(weights)} weights",
        )


@microsoft("Tokenizer", attributes="mark mincharnum pad_value separators tokenexp", inputs=(1, 1))
def _tokenizer(node: Node) -> Any:
    separators, expression, least = (
        node.attr(k, d) for k, d in (("separators", []), ("tokenexp", ""), ("mincharnum", 1))
    )
    if bool(separators) == bool(expression):
        node.error("Tokenizer: one of 'separators' and 'tokenexp' says where tokens are", found=f"{separators}")
    if least < 1 or (least > 1 and (expression == "." or separators == [""])) or node.ndim() > 2:
        node.error(
            "Tokenizer: texts in one or two dimensions, tokens of at least one character, or of exactly one",
            found=f"'mincharnum' {least}, {node.ndim()} dimensions",
        )
    return node.host(
        "Tokenizer",
        node.inputs,
        [_kind(node, node.ndim() + 1)],
        separators=separators,
        expression=expression,
        mark=node.attr("mark", 0),
        pad=node.attr("pad_value", ""),
        least=least,
    )


@converter("ImageDecoder")
def _decode(node: Node) -> Any:
    form = node.attr("pixel_format", "RGB")
    if form not in ("RGB", "BGR", "Grayscale"):
        node.error("ImageDecoder: an unknown format of pixels", expected="RGB, BGR or Grayscale", found=form)
    return node.host("ImageDecoder", node.inputs, [Kind("tensor", "uint8", 3)], pixel_format=form)
