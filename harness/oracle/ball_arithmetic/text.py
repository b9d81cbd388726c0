"""Strings and n-grams. Strings are exact: arrays of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, exact, value
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, rule


def texts(ball: Ball) -> Array:
    """The strings of a ball as an array of str."""
    decode = np.frompyfunc(lambda text: text.decode() if isinstance(text, bytes) else str(text), 1, 1)
    return np.asarray(decode(value(ball)), object)


@rule("StringConcat")
def string_concat(node: Node, operands: Operands, context: Context) -> Results:
    """z = x followed by y, broadcast"""
    return [exact(np.asarray(texts(operands[0]) + texts(operands[1]), object))]


@rule("RegexFullMatch")
def regex_full_match(node: Node, operands: Operands, context: Context) -> Results:
    """Whether the whole string matches a pattern"""
    pattern = re.compile(node.attributes["pattern"])
    matches = np.frompyfunc(lambda text: pattern.fullmatch(text) is not None, 1, 1)
    return [exact(np.asarray(matches(texts(operands[0]))).astype(np.bool_))]


@rule("StringSplit")
def string_split(node: Node, operands: Operands, context: Context) -> Results:
    """The parts of each string around a delimiter (white space when there is none), and how many there are"""
    x = texts(operands[0])
    delimiter, most = attribute(node, "delimiter", "") or None, attribute(node, "maxsplit", -1)
    parts = [text.split(delimiter, most) if text else [] for text in x.ravel()]
    counts = np.array([len(p) for p in parts], np.int64)
    width = int(counts.max(initial=0))
    table = np.array([p + [""] * (width - len(p)) for p in parts], object).reshape(*x.shape, width)
    return [exact(table), exact(counts.reshape(x.shape))]


@rule("StringNormalizer")
def string_normalizer(node: Node, operands: Operands, context: Context) -> Results:
    """Words without the stop words, in upper or lower case; one empty word when none is left"""
    action, sensitive = attribute(node, "case_change_action", "NONE"), attribute(node, "is_case_sensitive", 0)
    fold = _same if sensitive else str.lower
    stop = {fold(_text(word)) for word in attribute(node, "stopwords", ())}
    changes: Mapping[str, Callable[[str], str]] = {"UPPER": str.upper, "LOWER": str.lower, "NONE": _same}
    x = texts(operands[0])
    words = [changes[action](word) for word in x.ravel() if fold(word) not in stop] or [""]
    return [exact(np.array(words, object).reshape((-1,) if x.ndim < 2 else (1, -1)))]


def _same(word: str) -> str:
    return word


def _text(word: str | bytes) -> str:
    return word.decode() if isinstance(word, bytes) else word


@rule("TfIdfVectorizer")
def tfidf_vectorizer(node: Node, operands: Operands, context: Context) -> Results:
    """How often each n-gram of a pool occurs in each row, as a count, a flag or a weight"""
    attributes = node.attributes
    if "pool_strings" in attributes:
        x, pool = texts(operands[0]), [_text(word) for word in attributes["pool_strings"]]
    else:
        x, pool = value(operands[0]), list(attributes["pool_int64s"])
    indices, mode = attributes["ngram_indexes"], attributes["mode"]
    grams = _grams(pool, attributes["ngram_counts"])
    lengths = range(attributes["min_gram_length"], attributes["max_gram_length"] + 1)
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    counts = np.zeros((len(rows), max(indices) + 1))
    for row, words in zip(counts, rows.tolist()):
        for number, gram in enumerate(grams):
            if len(gram) in lengths:
                row[indices[number]] += _occurrences(words, gram, attributes["max_skip_count"])
    weights = np.ones(counts.shape[1])
    for number, weight in enumerate(attribute(node, "weights", ())):
        weights[indices[number]] = weight
    result = {"TF": counts, "IDF": (counts > 0) * weights, "TFIDF": counts * weights}[mode]
    return [exact(result.reshape(*x.shape[:-1], -1).astype(np.float32))]


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
