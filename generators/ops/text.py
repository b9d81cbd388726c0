"""Strings. They live inside one record: it makes them, applies its operator and gives numbers."""

import numpy as np
from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import Domain, constant, data
from driftnet.generators.building.values import BOOL, FLOAT, INT32, INT64, STRING, Fill
from driftnet.generators.ops.registry import operator

_INTEGERS = Domain(lambda v: v.magnitude < 1e9, Fill("range", low=-9, high=9))


def _numerals(b: Builder) -> Value:
    """Whole numbers as text."""
    return b.cast(data(b, dtypes=(INT64, INT32), ranks=(1, 2, 3, 0), domain=_INTEGERS), STRING)


def _number(b: Builder, x: Value) -> None:
    """Text as numbers."""
    b.emit((x,), x, {"to": FLOAT}, op_type="Cast", dtype=FLOAT, bounds=1e12)


def _texts(words: tuple[str, ...]) -> np.ndarray:
    return np.array(words, object)


@operator("StringConcat", weight=0.2)
def string_concat(b: Builder) -> None:
    """z = x followed by y, broadcast"""
    x = _numerals(b)
    y = constant(b, "y", _texts((b.choose("suffix", ("0", "e2", ".5")),)).reshape(()))
    _number(b, b.emit((x, y), x))


@operator("StringNormalizer", weight=0.2)
def string_normalizer(b: Builder) -> None:
    """Words without the stop words, in upper or lower case"""
    words = b.choose("words", (("1e1", "2", "-3"), ("4", "2E2"), ("7",)))
    case, sensitive = b.choose("case", ("NONE", "UPPER", "LOWER")), b.choose("is_case_sensitive", (0, 1))
    stop = b.choose("stopwords", (None, ("2",), ("-3", "11")))
    left = [word for word in words if word not in (stop or ())]
    x = constant(b, "x", _texts(words))
    attributes = {"locale": "C", "case_change_action": case, "is_case_sensitive": sensitive, "stopwords": stop}
    _number(b, b.emit((x,), (len(left),), attributes))


@operator("StringSplit", weight=0.2)
def string_split(b: Builder) -> None:
    """The parts of each string around a delimiter, and how many there are"""
    x = _numerals(b)
    suffix, delimiter = b.choose("suffix", (" 5", ",5 ", "")), b.choose("delimiter", (None, ","))
    y = constant(b, "y", _texts((suffix,)).reshape(()))
    joined = b.emit((x, y), x, op_type="StringConcat")
    parts = 2 if suffix.startswith(delimiter or " ") else 1
    b.emit_all((joined,), [(STRING, lambda s: (*s, parts)), (INT64, x)], {"delimiter": delimiter}, bounds=(0.0, 4.0))


@operator("RegexFullMatch", weight=0.2)
def regex_full_match(b: Builder) -> None:
    """Whether the whole string matches a pattern"""
    x = _numerals(b)
    b.emit((x,), x, b.attributes(pattern=("[0-9]+", "-?[0-4]+", ".*")), dtype=BOOL, bounds=(0.0, 1.0))


@operator("TfIdfVectorizer", weight=0.2)
def tfidf_vectorizer(b: Builder) -> None:
    """How often each n-gram of a pool occurs in each row, as a count, a flag or a weight"""
    digits = Domain(lambda v: True, Fill("range", high=3))
    x = data(b, dtypes=(INT64, INT32), ranks=(1, 2), fixed=None, domain=digits)
    mode, skips = b.choose("mode", ("TF", "IDF", "TFIDF")), b.choose("max_skip_count", (0, 1))
    attributes = {
        "mode": mode,
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": skips,
        "ngram_counts": (0, 3),
        "ngram_indexes": (0, 1, 2, 3, 4),
        "pool_int64s": (0, 1, 2, 0, 1, 1, 2),
        "weights": (1.0, 2.0, 0.5, 1.0, 1.5) if b.flag("weighted") else None,
    }
    b.emit((x,), lambda s: (*s[:-1], 5), attributes, dtype=FLOAT, bounds=(0.0, 1024.0))
