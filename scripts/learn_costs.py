"""Learn what candidates take on a core from tuning logs, say the error on models left out, and write the core's file.

    scripts/learn_costs.py LOG... [-o FILE]

A log is one of a model. Without -o nothing is written; mtool takes mtool/tuning/cores/<cpu>.json.
"""

import argparse
import json
import sys
from pathlib import Path

from mtool.compiler.tuned import record as tuning_log
from mtool.tuning.candidates import CostModel, left_out, usable


def main() -> int:
    """Learn, and print the errors as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    models = {path.stem: usable(tuning_log.read([path]).measurements) for path in given.logs}
    everything = [one for measured in models.values() for one in measured]
    kinds = {(one.target.cpu, one.setup.unit) for one in everything}
    if len(kinds) != 1:
        parser.error(f"the logs have to be of one core and unit, found {sorted(kinds)}")
    print("| model left out | candidates | error by instructions | learned |\n|---|--:|--:|--:|")
    for name, (before, after) in left_out(models).items() if len(models) > 1 else ():
        print(f"| {name} | {len(models[name]):,} | {before:.1%} | {after:.1%} |")
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(CostModel.fit(everything).as_json(), indent=1) + "\n")
        print(given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
