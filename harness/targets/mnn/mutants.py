"""Bugs of MNN's own files for `driftnet selfcheck`, done in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from driftnet.targets.mnn import artifact


def rolled_scales_in_file(path: str) -> None:
    """Each channel of the weights in an MNN file has the scale of the one before."""
    _rescale(path, lambda scales: np.roll(scales, 1, axis=0))


def scales_off_by_a_percent_in_file(path: str) -> None:
    """The scales of the weights in an MNN file are a percent too large."""
    _rescale(path, lambda scales: scales * np.float32(1.01))


def _rescale(path: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Put other scales in the places of the weights', each wherever it lies first: offsets may stand between them."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    for layer in artifact.read(path)["layers"]:
        pairs = zip(layer["scales"].flat, change(layer["scales"]).flat)
        places = [(content.find(np.float32(x).tobytes()), np.float32(y).tobytes()) for x, y in pairs]
        for place, value in places:
            if place >= 0:
                content[place : place + 4] = value
    with open(path, "wb") as file:
        file.write(content)
