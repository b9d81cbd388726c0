"""Attention and what stands around it."""

from __future__ import annotations

from generators.builder import Builder, each
from generators.graph import Attribute, Value
from generators.ops.elementwise import magnitude, tame
from generators.ops.registry import operator
from generators.values import BOOL, Shape

LARGEST = 1e3


@operator("Attention", since=23, weight=1.5)
def attention(b: Builder) -> None:
    """softmax(scale Q K' + mask) V for each head; Q (B, H, S, D), or (B, S, H D) with the heads as an attribute"""
    q = b.data("q", dtypes=b.types("Attention", "T1"), ranks=(4, 3), fits=tame(LARGEST), fixed=(1, 2, 3))
    heads = b.choose("heads", (1, 2, 1))
    scale, causal = b.choose("scale", (None, 1.0, 0.5)), b.choose("is_causal", (0, 0, 1))
    masked, softcap = b.choose("mask", ("none", "float", "bool")), b.choose("softcap", (None, None, 2.0))
    sources = (b.choose("k", ("same", "input", "initializer")), b.choose("v", ("same", "input", "initializer")))
    heads = heads if q.rank == 3 and q.shape[2] % heads == 0 else 1
    k, v = (q if source == "same" else b.made(source, q.shapes, q.dtype, "weight") for source in sources)
    length = q.shape[1] if q.rank == 3 else q.shape[2]
    attributes: dict[str, Attribute | None] = {
        "is_causal": b.unless(causal, 0),
        "scale": scale,
        "softcap": softcap,
    }
    if q.rank == 3:
        attributes |= {"q_num_heads": heads, "kv_num_heads": heads}
    source, mask = b.choose("mask_source", ("initializer", "input")), None
    square = ((length, length),) * len(q.shapes)
    if masked == "float":
        mask = b.made(source, square, q.dtype, "weight")
    elif masked == "bool":  # all of it true: a row without has no softmax
        mask = b.whole("mask_made", square, 1, 1, dtype=BOOL)
    top = magnitude(v)
    b.emit("Attention", (q, k, v, mask), q.shapes, attributes, bounds=(-top, top))


@operator("RotaryEmbedding", since=23, weight=0.7)
def rotary_embedding(b: Builder) -> None:
    """Pairs of features turned by the angles of cosine and sine caches, at each position"""
    dtypes, least, most = b.types("RotaryEmbedding"), (1, 1, 1, 2), (8, 8, 8, 2)
    x = b.data(dtypes=dtypes, ranks=(4,), fixed=None, least=least, most=most, fits=_even)
    half, length = x.shape[3] // 2, x.shape[2]
    interleaved, by_position = b.choose("interleaved", (0, 1)), b.flag("position_ids")
    positions = None
    caches: Shape = (x.shape[0], length, half)
    if by_position:
        positions = b.whole("positions", each(lambda s: (s[0], s[2]), x), 0, length - 1)
        caches = (length, half)
    cosines, sines = (b.weight(name, caches, dtype=x.dtype, fill="unit") for name in ("cos", "sin"))
    top = 8.0 * magnitude(x) * max(magnitude(cosines), magnitude(sines), 1.0)
    attributes = {"interleaved": b.unless(interleaved, 0)}
    b.emit("RotaryEmbedding", (x, cosines, sines, positions), x.shapes, attributes, bounds=(-top, top))


def _even(v: Value) -> bool:
    return v.shape[-1] % 2 == 0 and tame(1e6)(v)
