"""Saturation: where integer kernels add pairs of u8 s8 products in 16 bits, a pair that is too large is cut.

So do those of AVX2 and of AVX-512 without VNNI; newer machines add in 32 bits. A target that runs such kernels declares
it, by this name. Signed activations that are dequantized and quantized again around an operator are no way out: on x86
onnxruntime rewrites them to unsigned ones first (QDQS8ToU8Transformer).
"""

from driftnet.util.machine import cpu_features

RULE = "u8s8-saturation"
WIDE_KERNELS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimd"})
LARGEST = 2**15 - 1


def is_possible() -> bool:
    """Whether this machine has no kernels that add in 32 bits."""
    return WIDE_KERNELS.isdisjoint(cpu_features())


def saturates(activation: float, weight: float) -> bool:
    """Whether this machine may cut a pair of products of codes that are at most so large, by magnitude."""
    return is_possible() and 2 * activation * weight > LARGEST
