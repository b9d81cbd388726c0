"""Attention and what stands around it."""

from typing import Any

from driftnet.generators.building.builder import Builder
from driftnet.generators.building.graph import Value
from driftnet.generators.building.operands import Domain, data, made, tame, weight, whole
from driftnet.generators.building.sizes import Sizes
from driftnet.generators.building.values import BOOL, FLOAT, Shape
from driftnet.generators.ops.registry import operator


@operator("Attention", weight=2.0)
def attention(b: Builder) -> None:
    """softmax(scale Q K' + mask) V for each head; Q (B, H, S, D), or (B, S, H D) with the heads as an attribute

    K and V may have fewer heads (grouped queries), another length, and a past that comes before them.
    """
    q = data(b, "q", ranks=(4, 3), domain=tame(1e3), fixed=(1, 2, 3))
    wanted, shared = b.choose("heads", (1, 2, 1)), b.choose("sharing", (1, 1, 2))
    heads = q.shape[1] if q.rank == 4 else wanted if q.shape[2] % wanted == 0 else 1
    of_keys = heads // shared if heads % shared == 0 else heads
    queries = q.shape[-2]
    length = b.choose("length", (None, None, 3, 1)) or queries
    size = q.shape[-1] if q.rank == 4 else q.shape[2] // heads

    def by_head(heads: int, length: int, size: int) -> tuple[Shape, ...]:
        return tuple([(s[0], heads, length, size) for s in q.shapes])

    keys = by_head(of_keys, length, size) if q.rank == 4 else tuple([(s[0], length, of_keys * size) for s in q.shapes])
    sources = (b.choose("k", ("same", "input", "initializer")), b.choose("v", ("same", "input", "initializer")))
    k, v = (
        q if source == "same" and keys == q.shapes else made(b, source, keys, q.dtype, "weight") for source in sources
    )
    earlier = b.choose("past", (0, 0, 2))
    past: list[Value | None] = [None, None]
    if earlier:
        past = [made(b, "input", by_head(of_keys, earlier, size), q.dtype, "weight") for _ in range(2)]
    attributes = _scores(b, square=length == queries and not earlier)
    if q.rank == 3:
        attributes |= {"q_num_heads": heads, "kv_num_heads": of_keys}
    total = earlier + length
    mask = _mask(b, q, (queries, total))
    # onnxruntime wants the present wherever there is a past.
    present = (q.dtype, by_head(of_keys, total, size)) if earlier else None
    outputs = [(q.dtype, q.shapes), present, present]
    # Of a past, of three dims, in opset 23 or where it does not know the shape of Q onnx infers another shape for them.
    known = q.rank == 4 and any(given.value is q for given in b.givens)
    probabilities = b.choose("qk_matmul_output_mode", (None, None, 0, 3))
    if probabilities is not None and known and not earlier and b.opset > 23:
        outputs.append((q.dtype, by_head(heads, queries, total)))
        attributes["qk_matmul_output_mode"] = probabilities
    of_values = max(x.magnitude for x in (v, *past) if x is not None)
    top = max(of_values, q.magnitude * k.magnitude * size, 1.0)
    b.emit_all((q, k, v, mask, *past), outputs, attributes, bounds=top)


def _scores(b: Builder, *, square: bool) -> dict[str, Any]:
    """How scores come about. What is causal or a window where Q and K differ in length, engines disagree about."""
    chosen = b.attributes(
        scale=(None, 1.0, 0.5), softcap=(None, None, 2.0), is_causal=(0, 0, 1), softmax_precision=(None, None, FLOAT)
    )
    if not square:
        chosen["is_causal"] = 0
    return {"is_causal": 0, **chosen}


def _mask(b: Builder, q: Value, sizes: Shape) -> Value | None:
    """Numbers that are added to the scores, or which of them count: all, as a row without has no softmax."""
    kind, source = b.choose("mask", ("none", "float", "bool")), b.choose("mask_source", ("initializer", "input"))
    if kind == "none":
        return None
    return (
        made(b, source, b.shapes(sizes), q.dtype, "weight")
        if kind == "float"
        else whole(b, "ones", sizes, 1, 1, dtype=BOOL)
    )


@operator("RotaryEmbedding", weight=1.0)
def rotary_embedding(b: Builder) -> None:
    """Pairs of features turned by the angles of cosine and sine caches, at each position; X as in Attention

    Only the first rotary_embedding_dim features of a head are turned, all by default.
    """
    sizes, moderate = Sizes(least=(1, 1, 4, 4), most=(8, 8, 4, 4)), tame(1e6)
    even = Domain(lambda v: v.shape[-1] % 2 == 0 and moderate.holds(v))
    x = data(b, ranks=(4, 3), fixed=None, sizes=sizes, domain=even)
    heads = b.choose("num_heads", (1, 2))
    heads = heads if x.rank == 3 and x.shape[2] % (2 * heads) == 0 else 1
    size = x.shape[3] if x.rank == 4 else x.shape[2] // heads
    turned = 2 if b.choose("partial", (False, False, True)) and size > 2 else size
    half, length = turned // 2, x.shape[-2]
    interleaved, by_position = b.choose("interleaved", (0, 1)), b.flag("position_ids")
    positions = whole(b, "positions", (x.shape[0], length), 0, length - 1) if by_position else None
    caches = (length, half) if by_position else (x.shape[0], length, half)
    cosines, sines = (weight(b, name, caches, dtype=x.dtype, fill="unit") for name in ("cos", "sin"))
    attributes = {
        "interleaved": interleaved,
        "num_heads": heads if x.rank == 3 else None,
        "rotary_embedding_dim": turned if turned < size else None,
    }
    top = 8.0 * x.magnitude * max(cosines.magnitude, sines.magnitude, 1.0)
    b.emit((x, cosines, sines, positions), x, attributes, bounds=top)
