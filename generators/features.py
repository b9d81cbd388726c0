"""Features: what beside operators and motifs a campaign can make rarer or more frequent.

The weight of a feature is a factor on the odds of a case having it, as that of an operator is on its being drawn. A
genome's header is drawn again where it does not suit; where operands come from is narrowed case by case.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from driftnet.generators.building import values
from driftnet.generators.building.header import FORMS, HEADER, MODEL_DTYPES, OPSETS, Header
from driftnet.generators.building.profile import Profile
from driftnet.generators.building.record import FLAGS_AT, TAKES_EMPTY
from onnx import TensorProto

PREFIX = "feature:"
TRIES = 1000
EMPTY = "zero-size"


def _has(read: Callable[[Header], object], wanted: object) -> Callable[[Header], bool]:
    return lambda header: read(header) == wanted


OF_HEADER: Mapping[str, Callable[[Header], bool]] = {
    "symbolic": lambda header: bool(header.dynamic),
    "several-feeds": lambda header: header.feeds > 1,
    "batch": lambda header: header.batch > 1,
    "every-sink": lambda header: header.every_sink,
    **{f"opset-{opset}": _has(lambda header: header.opset, opset) for opset in sorted(set(OPSETS))},
    **{f"values-{regime.name}": _has(lambda header: header.regime, regime) for regime in values.REGIMES},
    **{f"dtype-{TensorProto.DataType.Name(d).lower()}": _has(lambda header: header.dtype, d) for d in MODEL_DTYPES},
    **{f"form-{form}": _has(lambda header: header.form, form) for form in FORMS},
}
"""Feature -> whether the models of a header have it (dtype: whether it is the one that most operators have)."""

OF_OPERANDS: Mapping[str, str] = {f"source-{source}": source for source in Profile().weights if source != "initializer"}
"""Feature -> where operands come from. Initializers are what is left when all else is ruled out."""


def known_features() -> tuple[str, ...]:
    """Every feature that weights understand, with its prefix."""
    return tuple([PREFIX + name for name in (*OF_HEADER, EMPTY, *OF_OPERANDS)])


def factors(weights: Mapping[str, float]) -> dict[str, float]:
    """The features among `weights` that change anything, without the prefix. Raises ValueError for an unknown one."""
    found = {name.removeprefix(PREFIX): factor for name, factor in weights.items() if name.startswith(PREFIX)}
    for name in found:
        if PREFIX + name not in known_features():
            raise ValueError(f"no feature is called {name!r}; there are {', '.join(known_features())}")
    return {name: factor for name, factor in found.items() if factor != 1.0}


def header(rng: Random, wanted: Mapping[str, float]) -> bytes:
    """Bytes of a header, drawn until they suit. Raises ValueError where the factors leave hardly anything."""
    steered = [(OF_HEADER[name], factor) for name, factor in wanted.items() if name in OF_HEADER]
    for _ in range(TRIES):
        data = rng.randbytes(HEADER)
        if not steered or rng.random() < _odds(Header.read(data), steered):
            return data
    raise ValueError(f"hardly a model suits the weights of {', '.join(sorted(wanted))}")


def _odds(drawn: Header, steered: list[tuple[Callable[[Header], bool], float]]) -> float:
    """With how much of a chance a header is taken: the factor if it has a rare feature, 1 / it if it lacks a wanted."""
    odds = 1.0
    for has, factor in steered:
        if has(drawn):
            odds *= min(factor, 1.0)
        elif factor > 1.0:
            odds /= factor
    return odds


def sized(records: list[bytes], rng: Random, wanted: Mapping[str, float]) -> list[bytes]:
    """`records`, of those that would take or make a tensor without elements only that share which is wanted."""
    factor = wanted.get(EMPTY, 1.0)
    if factor >= 1.0:
        return records
    return [
        _filled(record) if record[FLAGS_AT] >= TAKES_EMPTY and rng.random() >= factor else record for record in records
    ]


def _filled(record: bytes) -> bytes:
    """The record without its highest flag."""
    return record[:FLAGS_AT] + bytes([record[FLAGS_AT] % 128]) + record[FLAGS_AT + 1 :]


def narrowed(profile: Profile | None, rng: Random, wanted: Mapping[str, float]) -> Profile | None:
    """`profile` without each source that has a factor f below 1, with a chance of 1 - f."""
    for name, factor in wanted.items():
        if name in OF_OPERANDS and rng.random() >= factor:
            whole = profile or Profile()
            kept = [tuple(s for s in sources if s != OF_OPERANDS[name]) for sources in (whole.weights, whole.numbers)]
            profile = replace(whole, weights=kept[0], numbers=kept[1])
    return profile
