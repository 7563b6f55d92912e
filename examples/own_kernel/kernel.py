"""One C file in place of one operator: HardSigmoid of float32. `mtool run MODEL --backend kernel.py`."""

from pathlib import Path

from mtool.compiler.backends import Backend, Pattern, Product, Region

HERE = Path(__file__).parent


class OwnKernel(Backend):
    name = "own_kernel"
    patterns = (Pattern("HardSigmoid", dtypes=("float32",)),)
    whole_regions = False  # one operator a call

    def compile(self, region: Region, folder: Path) -> Product:
        (one,) = region.operations
        attrs = one.attrs
        return Product(
            body=f"    hard_sigmoid(input0, output0, {one.output.type.count}, {attrs.alpha}f, {attrs.beta}f);",
            headers=("own/hard_sigmoid.h",),
            files={f"own/{name}": (HERE / name).read_bytes() for name in ("hard_sigmoid.c", "hard_sigmoid.h")},
        )
