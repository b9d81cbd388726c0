"""Attention, and the rotation of positions into it."""

import math
from collections.abc import Sequence

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, constant, exact, joined, moved, value
from driftnet.oracle.ball_arithmetic.elementwise import add, multiply, select, subtract
from driftnet.oracle.ball_arithmetic.functions import through
from driftnet.oracle.ball_arithmetic.linear import products
from driftnet.oracle.ball_arithmetic.rules import Context, Maybe, Results, attribute, rule
from driftnet.oracle.ball_arithmetic.softmax import softmax


@rule("Attention")
def attention(
    q: Ball, k: Ball, v: Ball, *rest: Maybe, scale: float | None = None, node: Node, context: Context
) -> Results:
    """softmax(scale Q K' + mask) V for each head; the keys and values with those of the past before them; and how far
    the weights have come after the product, the cap, the mask or the softmax."""
    mask, past_key, past_value, lengths = [*rest, *[None] * 4][:4]
    stage = attribute(node, "qk_matmul_output_mode", 0)
    flat = q.midpoint.ndim == 3
    q = _by_head(q, attribute(node, "q_num_heads", 1))
    k, v = (_by_head(x, attribute(node, "kv_num_heads", 1)) for x in (k, v))
    k, v = (
        x if past is None else joined([past, x], lambda both: np.concatenate(both, 2))
        for past, x in ((past_key, k), (past_value, v))
    )
    shared = q.shape[1] // k.shape[1]
    keys, values = (moved(x, lambda a: np.repeat(a, shared, 1)) for x in (k, v))
    product = products(np.matmul, q, moved(keys, lambda a: np.swapaxes(a, -1, -2)), q.shape[-1])
    scores = product.times(float(np.float32(1 / math.sqrt(q.shape[-1]))) if scale is None else scale).ball(q.dtype)
    capped = _capped(node, scores)
    masked = _masked(node, capped, mask, lengths)
    weights = softmax(masked)
    y = products(np.matmul, weights, values, values.shape[-2]).ball(q.dtype)
    if flat:
        y = moved(y, lambda a: np.swapaxes(a, 1, 2).reshape(a.shape[0], a.shape[2], -1))
    if stage in (1, 2) and context.opset < 24:  # there the mask came before the cap
        return [y, k, v, None]
    return [y, k, v, (scores, capped, masked, weights)[stage]]


def _by_head(x: Ball, heads: int) -> Ball:
    """(B, H, S, D), of (B, S, H D) too."""
    if x.midpoint.ndim == 4:
        return x
    return moved(x, lambda a: np.swapaxes(a.reshape(*a.shape[:2], heads, -1), 1, 2))


def _capped(node: Node, scores: Ball) -> Ball:
    """softcap tanh(scores / softcap)"""
    cap = attribute(node, "softcap", 0.0)
    return through(lambda x: cap * np.tanh(x / cap), scores, "Tanh") if cap else scores


def _masked(node: Node, scores: Ball, mask: Maybe, lengths: Maybe) -> Ball:
    """With the mask added, and -inf where it forbids, where a key is padding, or where a causal one lets no query see a
    later key."""
    *_, queries, keys = scores.shape
    causal, allowed = attribute(node, "is_causal", 0), np.array(True)
    if causal and lengths is not None:
        raise Undecided("which query is the last of padded keys: opsets differ")
    if causal:
        allowed = np.tri(queries, keys, keys - queries, dtype=bool)
    if lengths is not None:
        allowed = np.arange(keys) < value(lengths).reshape(-1, 1, 1, 1)
    if mask is not None and mask.dtype == bool:
        allowed = allowed & value(mask)
    elif mask is not None:
        forbidding = np.isneginf(mask.numbers)
        allowed = allowed & ~forbidding
        scores = add(scores, moved(mask, lambda a: np.where(forbidding, 0, a)))
    if allowed.all():
        return scores
    return select(exact(allowed), scores, constant(-np.inf, scores.dtype))


@rule("RotaryEmbedding")
def rotary_embedding(
    x: Ball, *caches: Ball, num_heads: int = 0, rotary_embedding_dim: int = 0, interleaved: int = 0
) -> Ball:
    """(x1 cos - x2 sin, x1 sin + x2 cos) for pairs of features, neighbours or from the two halves"""
    whole = _by_head(x, num_heads or 1)
    turned = rotary_embedding_dim or whole.shape[-1]
    cosines, sines = (_at_positions(cache, *caches[2:]) for cache in caches[:2])
    if interleaved:
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    else:
        first, second = slice(0, turned // 2), slice(turned // 2, turned)
    a, b = moved(whole, lambda v: v[..., first]), moved(whole, lambda v: v[..., second])
    real = subtract(multiply(a, cosines), multiply(b, sines))
    imaginary = add(multiply(a, sines), multiply(b, cosines))

    def placed(parts: Sequence[Array]) -> Array:
        result = parts[0].copy()
        result[..., first], result[..., second] = parts[1:]
        return result

    y = joined([whole, real, imaginary], placed)
    if x.midpoint.ndim == 3:
        y = moved(y, lambda v: np.swapaxes(v, 1, 2).reshape(x.shape))
    return y


def _at_positions(cache: Ball, positions: Maybe = None) -> Ball:
    """(B, 1, S, D / 2), to broadcast over heads."""
    if positions is not None:
        at = value(positions)
        cache = moved(cache, lambda a: a[at])
    return moved(cache, lambda a: a[:, None])
