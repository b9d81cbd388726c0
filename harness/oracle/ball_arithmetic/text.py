"""Strings and n-grams, which are exactly known. What becomes of strings, onnx.reference says as the standard does."""

import locale
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import re2
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Undecided
from driftnet.oracle.ball_arithmetic.rules import knowing
from driftnet.util.limits import lacks_memory
from onnx import helper


def _text(word: Any) -> Any:
    return word.decode() if isinstance(word, bytes) else word


_TEXTS = np.frompyfunc(_text, 1, 1)


@knowing("RegexFullMatch")
def regex_full_match(x: Array, *, pattern: str | bytes) -> Array:
    """Whether the whole string matches a pattern, in the syntax of RE2, by RE2: its time is linear in the string"""
    options = re2.Options()
    options.log_errors = False
    try:
        matches = re2.compile(_text(pattern), options).fullmatch
    except re2.error as e:
        raise Undecided(f"no pattern: {e}") from None
    found = np.frompyfunc(lambda word: matches(_text(word)) is not None, 1, 1)(x)
    return np.asarray(found, bool)  # of a scalar it gives no array


@knowing("StringConcat", "StringNormalizer", "StringSplit")
def strings(*operands: Array, node: Node) -> list[Array]:
    """Operators on strings"""
    from onnx.reference import (
        ReferenceEvaluator,  # importing it takes longer than all of the rules, and strings are rare
    )

    feed = {f"x{k}": np.asarray(_TEXTS(x), object) for k, x in enumerate(operands)}
    proto = helper.make_node(node.op, list(feed), [f"y{k}" for k in range(len(node.outputs))], **node.attributes)
    before = locale.setlocale(locale.LC_ALL)  # StringNormalizer sets that of the process: how files are read
    try:
        results: Any = ReferenceEvaluator(proto).run(None, feed)
    except Exception as e:  # of any type: what it does not foresee it runs into, or asserts
        if lacks_memory(e):
            raise
        raise Undecided(f"onnx.reference fails: {type(e).__name__}") from None
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return [np.asarray(result, object) if result.dtype.kind == "U" else result for result in results]


@knowing("TfIdfVectorizer")
def tfidf_vectorizer(x: Array, *, mode: str, weights: Sequence[float] = (), node: Node) -> Array:
    """How often each n-gram of a pool occurs in each row, as a count, a flag or a weight"""
    attributes = node.attributes
    indices = list(attributes["ngram_indexes"])
    pool = attributes["pool_int64s" if "pool_int64s" in attributes else "pool_strings"]
    grams = _grams([_text(word) for word in pool], attributes["ngram_counts"])
    lengths = range(attributes["min_gram_length"], attributes["max_gram_length"] + 1)
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    counts = np.zeros((len(rows), max(indices) + 1))
    for row, words in zip(counts, np.asarray(_TEXTS(rows)).tolist()):
        for number, gram in enumerate(grams):
            if len(gram) in lengths:
                row[indices[number]] += _occurrences(words, gram, attributes["max_skip_count"])
    factors = np.ones(counts.shape[1])
    factors[indices[: len(weights)]] = weights
    result = {"TF": counts, "IDF": (counts > 0) * factors, "TFIDF": counts * factors}[mode]
    return result.reshape(*x.shape[:-1], -1).astype(np.float32)


def _grams(pool: Sequence[object], starts: Sequence[int]) -> list[tuple[object, ...]]:
    """The n-grams of a pool that holds those of one word first, then those of two, ..."""
    grams: list[tuple[object, ...]] = []
    for n, (start, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        grams += [tuple(pool[k : k + n]) for k in range(start, end, n)]
    return grams


def _occurrences(words: Sequence[object], gram: Sequence[object], most: int) -> int:
    """In how many places the n-gram stands, up to `most` words skipped between neighbours; one word has no gaps."""
    steps = range(1, most + 2) if len(gram) > 1 else range(1, 2)
    return sum(list(words[k : k + step * len(gram) : step]) == list(gram) for step in steps for k in range(len(words)))
