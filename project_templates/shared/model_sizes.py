"""Print the sizes of the models in a firmware, read from its ELF file, and what part of a memory each takes.

    python model_sizes.py zephyr.elf zephyr.map mtool.json ...
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from elftools.elf.elffile import ELFFile  # Zephyr's own scripts need it


def main(elf, linker_map, *described):
    with open(elf, "rb") as file:
        symbols = {one.name: one.entry for one in ELFFile(file).get_section_by_name(".symtab").iter_symbols()}
    configuration = Path(linker_map).read_text().partition("Memory Configuration")[2].partition("\n\nLinker")[0]
    memories = re.findall(r"^(\w+) +(0x\w+) +(0x\w+)", configuration, re.MULTILINE)

    def listed(names):
        sizes = defaultdict(int)
        for name in {*names} & {*symbols}:
            address = symbols[name]["st_value"]
            within = ((one, size) for one, base, size in memories if 0 <= address - int(base, 0) < int(size, 0))
            sizes[next(within, ("", "0"))] += symbols[name]["st_size"]
        return ", ".join(
            f"{count:,} B" + f" ({count / int(size, 0):.1%} of {memory})" * bool(memory)
            for (memory, size), count in sizes.items()
        )

    # Of a model that is compiled for several cores, the symbols of any.
    constants, arenas, needed = defaultdict(set), defaultdict(set), {}
    for path in described:
        for model in json.loads(Path(path).read_text())["models"]:
            constants[model["model"]] |= {*model["constants"]}
            pools = {pool["symbol"] for pool in model.get("pools", ())}
            arenas[model["model"]] |= pools or {model["symbols"].get("arena")}
            needed[model["model"]] = model["arena_bytes"]
    for model in needed:
        others = [other for other in needed if other != model and arenas[other] & arenas[model] & {*symbols}]
        arena = listed(arenas[model]) or ("the caller's" if needed[model] else "none")
        shared = f", shared with {', '.join(others)}" * bool(others)
        print(f"{model}: constants {listed(constants[model]) or 'none'}; arena {arena}{shared}")


main(*sys.argv[1:])
