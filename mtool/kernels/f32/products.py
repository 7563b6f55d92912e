"""Products of float32: multiply-add or fused multiply-add, and the cores with register tiles."""

from mtool.kernels.target import Target

SLOW_FMA = frozenset({"cortex-m4"})  # cores whose VFMA takes longer than VMUL and VADD: Arm DDI 0439B, table 7-1
PRODUCTS = ("muladd", "fma")  # rounded before they are added, or not
PRODUCT_MEANING = "products are rounded before they are added, or fused; auto: as the core does it faster"


def best_product(target: Target) -> str:
    """Return how the core adds products in fewer cycles."""
    return "muladd" if target.cpu in SLOW_FMA else "fma"


def has_tiles(target: Target) -> bool:
    """Whether the register tiles of mt_f32.h are for the target: a Cortex-M with a float32 FPU."""
    return "fpu" in target.features and target.cpu.startswith("cortex-m")
