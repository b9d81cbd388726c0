"""Attention, and the rotation of positions into it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from driftnet.model.graph import Node
from driftnet.oracle.ball_arithmetic.ball import Array, Ball, Undecided, exact, value
from driftnet.oracle.ball_arithmetic.elementwise import add, multiply, negated, select
from driftnet.oracle.ball_arithmetic.functions import through
from driftnet.oracle.ball_arithmetic.linear import products
from driftnet.oracle.ball_arithmetic.operands import joined, moved, operand
from driftnet.oracle.ball_arithmetic.rules import Context, Operands, Results, attribute, number, rule
from driftnet.oracle.ball_arithmetic.softmax import softmax


@rule("Attention")
def _attention(node: Node, operands: Operands, context: Context) -> Results:
    """softmax(scale Q K' + mask) V for each head; the keys and values with those of the past before them; and how far
    the weights have come after the product, the cap, the mask or the softmax."""
    q = _by_head(operands[0], attribute(node, "q_num_heads", 1))
    k, v = (_by_head(x, attribute(node, "kv_num_heads", 1)) for x in operands[1:3])
    past = [operand(operands, 4), operand(operands, 5)]
    k, v = (x if p is None else joined([p, x], lambda both: np.concatenate(both, 2)) for p, x in zip(past, (k, v)))
    shared = q.shape[1] // k.shape[1]
    keys, values = (moved(x, lambda a: np.repeat(a, shared, 1)) for x in (k, v))
    scale = number(node, "scale", 1 / math.sqrt(q.shape[-1]))
    product = products(np.matmul, q, moved(keys, lambda a: np.swapaxes(a, -1, -2)), q.shape[-1])
    scores = product.times(scale).ball(q.dtype)
    capped = _capped(node, scores)
    masked = _masked(node, capped, operand(operands, 3), operand(operands, 6))
    weights = softmax(masked)
    y = products(np.matmul, weights, values, values.shape[-2]).ball(q.dtype)
    if operands[0].midpoint.ndim == 3:
        y = moved(y, lambda a: np.swapaxes(a, 1, 2).reshape(a.shape[0], a.shape[2], -1))
    stage = int(attribute(node, "qk_matmul_output_mode", 0))
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
    cap = number(node, "softcap", 0.0)
    return through(lambda x: cap * np.tanh(x / cap), scores, "Tanh") if cap else scores


def _masked(node: Node, scores: Ball, mask: Ball | None, lengths: Ball | None) -> Ball:
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
    return select(exact(allowed), scores, Ball(np.asarray(-np.inf), None, scores.dtype))


@rule("RotaryEmbedding")
def _rotary_embedding(node: Node, operands: Operands, context: Context) -> Results:
    """(x1 cos - x2 sin, x1 sin + x2 cos) for pairs of features, neighbours or from the two halves"""
    x = operands[0]
    whole = _by_head(x, attribute(node, "num_heads", 0) or 1)
    turned = int(attribute(node, "rotary_embedding_dim", 0)) or whole.shape[-1]
    cosines, sines = (_at_positions(cache, operand(operands, 3)) for cache in operands[1:3])
    if attribute(node, "interleaved", 0):
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    else:
        first, second = slice(0, turned // 2), slice(turned // 2, turned)
    a, b = moved(whole, lambda v: v[..., first]), moved(whole, lambda v: v[..., second])
    real = add(multiply(a, cosines), negated(multiply(b, sines)))
    imaginary = add(multiply(a, sines), multiply(b, cosines))

    def placed(parts: Sequence[Array]) -> Array:
        result = parts[0].copy()
        result[..., first], result[..., second] = parts[1:]
        return result

    y = joined([whole, real, imaginary], placed)
    if x.midpoint.ndim == 3:
        y = moved(y, lambda v: np.swapaxes(v, 1, 2).reshape(x.shape))
    return [y]


def _at_positions(cache: Ball, positions: Ball | None) -> Ball:
    """(B, 1, S, D / 2), to broadcast over heads."""
    if positions is not None:
        at = value(positions)
        cache = moved(cache, lambda a: a[at])
    return moved(cache, lambda a: a[:, None])
