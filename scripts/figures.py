"""Draw the figures of the documentation, docs/figures/*.svg, from what mtool compiles, builds, runs and measures.

scripts/figures.py [NAME …]

Each figure is two functions: one returns its data, the other draws them. The data stay in the SVG, as JSON in
<metadata>; tests/docs/test_figures.py gets them again and compares. Data that need MLPerf Tiny's models (a folder
`shared` beside the repository) are kept as they are where these are missing.
"""

import sys

from outputs import ROOT
from pictures import arenas, decisions, diagrams, measured, terminals
from pictures.figure import ALL, FIGURES

__all__ = ["arenas", "decisions", "diagrams", "measured", "terminals"]


def main() -> int:
    """Draw the figures, or those that are named."""
    FIGURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or ALL:
        one = ALL[name]
        one.path.write_text(one.svg(one.current_data()))
        sys.stdout.write(f"{one.path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
