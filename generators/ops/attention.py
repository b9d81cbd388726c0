"""Attention and what stands around it."""

from __future__ import annotations

from driftnet.generators.building.builder import Builder, each
from driftnet.generators.building.graph import Attribute, Value
from driftnet.generators.building.operands import data, made, weight, whole
from driftnet.generators.building.values import BOOL, FLOAT, Shape
from driftnet.generators.ops.elementwise import magnitude, tame
from driftnet.generators.ops.registry import operator

LARGEST = 1e3


@operator("Attention", since=23, weight=2.0)
def attention(b: Builder) -> None:
    """softmax(scale Q K' + mask) V for each head; Q (B, H, S, D), or (B, S, H D) with the heads as an attribute

    K and V may have fewer heads (grouped queries), another length, and a past that comes before them.
    """
    q = data(b, "q", dtypes=b.types("Attention", "T1"), ranks=(4, 3), fits=tame(LARGEST), fixed=(1, 2, 3))
    wanted, shared = b.choose("heads", (1, 2, 1)), b.choose("sharing", (1, 1, 2))
    heads = q.shape[1] if q.rank == 4 else wanted if q.shape[2] % wanted == 0 else 1
    of_keys = heads // shared if heads % shared == 0 else heads
    queries = q.shape[-2]
    length = b.choose("length", (None, None, 3, 1)) or queries
    size = q.shape[-1] if q.rank == 4 else q.shape[2] // heads

    def keys(count: int) -> tuple[Shape, ...]:
        if q.rank == 4:
            return each(lambda s: (s[0], of_keys, count, size), q)
        return each(lambda s: (s[0], count, of_keys * size), q)

    sources = (b.choose("k", ("same", "input", "initializer")), b.choose("v", ("same", "input", "initializer")))
    k, v = (
        q if source == "same" and keys(length) == q.shapes else made(b, source, keys(length), q.dtype, "weight")
        for source in sources
    )
    earlier = b.choose("past", (0, 0, 2))
    past: list[Value | None] = [None, None]
    if earlier:
        before = each(lambda s: (s[0], of_keys, earlier, size), q)
        past = [made(b, "input", before, q.dtype, "weight") for _ in range(2)]
    square = length == queries and not earlier
    attributes: dict[str, Attribute | None] = {
        **_scores(b, square),
        "q_num_heads": heads if q.rank == 3 else None,
        "kv_num_heads": of_keys if q.rank == 3 else None,
    }
    total = earlier + length
    mask = _mask(b, q, (queries, total))
    # onnxruntime wants the present wherever there is a past.
    present = (q.dtype, each(lambda s: (s[0], of_keys, total, size), q)) if earlier else None
    outputs = [(q.dtype, q.shapes), present, present]
    # Of a past, of three dims, in opset 23 or where it does not know the shape of Q onnx infers another shape for them.
    known = q.rank == 4 and any(given.value is q for given in b.givens)
    probabilities = b.choose("qk_matmul_output_mode", (None, None, 0, 3))
    if probabilities is not None and known and not earlier and b.opset > 23:
        outputs.append((q.dtype, each(lambda s: (s[0], heads, queries, total), q)))
        attributes["qk_matmul_output_mode"] = b.unless(probabilities, 0)
    top = max(magnitude(x) for x in (v, *past) if x is not None)
    products = magnitude(q) * magnitude(k) * size
    top = max(top, products, 1.0)
    b.emit_all("Attention", (q, k, v, mask, *past), outputs, attributes, bounds=(-top, top))


def _scores(b: Builder, square: bool) -> dict[str, int | float | None]:
    """How scores come about. What is causal or a window where Q and K differ in length, engines disagree about."""
    scale, softcap = b.choose("scale", (None, 1.0, 0.5)), b.choose("softcap", (None, None, 2.0))
    causal, precision = b.choose("is_causal", (0, 0, 1)), b.choose("softmax_precision", (None, None, FLOAT))
    return {
        "is_causal": b.unless(causal if square else 0, 0),
        "scale": scale,
        "softcap": softcap,
        "softmax_precision": precision,
    }


def _mask(b: Builder, q: Value, sizes: Shape) -> Value | None:
    """Numbers that are added to the scores, or which of them count: all, as a row without has no softmax."""
    kind, source = b.choose("mask", ("none", "float", "bool")), b.choose("mask_source", ("initializer", "input"))
    if kind == "none":
        return None
    shapes = (sizes,) * len(q.shapes)
    return made(b, source, shapes, q.dtype, "weight") if kind == "float" else whole(b, "ones", shapes, 1, 1, dtype=BOOL)


@operator("RotaryEmbedding", since=23, weight=1.0)
def rotary_embedding(b: Builder) -> None:
    """Pairs of features turned by the angles of cosine and sine caches, at each position; X as in Attention

    Only the first rotary_embedding_dim features of a head are turned, all by default.
    """
    dtypes, least, most = b.types("RotaryEmbedding"), (1, 1, 4, 4), (8, 8, 4, 4)
    x = data(b, dtypes=dtypes, ranks=(4, 3), fixed=None, least=least, most=most, fits=_even)
    heads = b.choose("num_heads", (1, 2))
    heads = heads if x.rank == 3 and x.shape[2] % (2 * heads) == 0 else 1
    size = x.shape[3] if x.rank == 4 else x.shape[2] // heads
    turned = 2 if b.choose("partial", (False, False, True)) and size > 2 else size
    half, length = turned // 2, x.shape[-2]
    interleaved, by_position = b.choose("interleaved", (0, 1)), b.flag("position_ids")
    positions = None
    caches: Shape = (x.shape[0], length, half)
    if by_position:
        positions = whole(b, "positions", ((x.shape[0], length),) * len(x.shapes), 0, length - 1)
        caches = (length, half)
    cosines, sines = (weight(b, name, caches, dtype=x.dtype, fill="unit") for name in ("cos", "sin"))
    top = 8.0 * magnitude(x) * max(magnitude(cosines), magnitude(sines), 1.0)
    attributes = {
        "interleaved": b.unless(interleaved, 0),
        "num_heads": heads if x.rank == 3 else None,
        "rotary_embedding_dim": turned if turned < size else None,
    }
    b.emit("RotaryEmbedding", (x, cosines, sines, positions), x.shapes, attributes, bounds=(-top, top))


def _even(v: Value) -> bool:
    return v.shape[-1] % 2 == 0 and tame(1e6)(v)
