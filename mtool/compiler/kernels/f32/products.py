"""Products of float32: multiply-add or fused multiply-add."""

from mtool.compiler.kernels.target import Target

PRODUCTS = ("muladd", "fma")  # rounded before they are added, or not
PRODUCT_MEANING = "products are rounded before they are added, or fused; auto: as the core does it faster"


def best_product(target: Target) -> str:
    """Return how the core adds products in fewer cycles."""
    return "muladd" if target.fuses_slowly else "fma"
