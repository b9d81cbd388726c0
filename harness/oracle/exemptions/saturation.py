"""Saturation: where integer kernels add pairs of u8 s8 products in 16 bits, a pair that is too large is cut.

So do those of AVX2 and of AVX-512 without VNNI; newer machines add in 32 bits. A target that runs such kernels declares
it, by this name.
"""

from driftnet.util.machine import cpu_features

RULE = "u8s8-saturation"
WIDE_KERNELS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimd"})
LARGEST = 2**15 - 1


def saturates(activation: float, weight: float) -> bool:
    """Whether this machine may cut a pair of products of codes that are at most so large, by magnitude."""
    return WIDE_KERNELS.isdisjoint(cpu_features()) and 2 * activation * weight > LARGEST
