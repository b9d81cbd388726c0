"""Header: what holds for a whole model, read from the first bytes of a genome."""

from __future__ import annotations

from dataclasses import dataclass

from driftnet.generators.building import values
from driftnet.generators.building.values import DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8, Regime

HEADER = 10
"""Bytes of a header."""

OPSETS = (17, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 18, 21, 13)
EVERY_AXIS = (0, 1, 2, 3, 4, 5)
DYNAMIC: tuple[tuple[int, ...], ...] = ((), (0,), (), (0, -1), (-1,), (0,), (0, 1), (0, -1, -2), (-2,), EVERY_AXIS)
GROWTHS = (1, 2, 3, 1, 5)
BATCHES = (1, 2, 1, 3, 2, 4, 5)
PREFERRED_RANKS = (2, 4, 3, 4, 3, 4, 2, 1, 5)
FORMS = (*["plain"] * 10, *["literal"] * 3, "unnamed", "listed", "described")
"""How the file is written, see GraphSpec.form."""
MODEL_DTYPES = (*[FLOAT] * 24, FLOAT16, DOUBLE, INT64, INT32, INT8, UINT8)
"""The dtype that the operators of a model have where they can."""


@dataclass(frozen=True)
class Header:
    """What holds for a whole model, read from the first bytes of a genome."""

    opset: int
    dynamic: tuple[int, ...]
    growth: int
    feeds: int
    batch: int
    regime: Regime
    rank: int
    every_sink: bool
    annotated: bool
    dtype: int
    form: str

    @staticmethod
    def read(data: bytes) -> Header:
        opset, dynamic, growth, batch, regime, rank, every_sink, annotated, dtype, form = data
        axes = DYNAMIC[dynamic % len(DYNAMIC)]
        return Header(
            opset=OPSETS[opset % len(OPSETS)],
            dynamic=axes,
            growth=GROWTHS[growth % len(GROWTHS)],
            feeds=2 if axes or growth >= 128 else 1,
            batch=BATCHES[batch % len(BATCHES)],
            regime=values.REGIMES[regime % len(values.REGIMES)],
            rank=PREFERRED_RANKS[rank % len(PREFERRED_RANKS)],
            every_sink=every_sink % 2 == 1,
            annotated=annotated % 2 == 1,
            dtype=MODEL_DTYPES[dtype % len(MODEL_DTYPES)],
            form=FORMS[form % len(FORMS)],
        )
