"""The site (`make docs`): the Markdown pages, and the reference from the code: commands, Python and C API, files."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

project = "mtool"
copyright = "the mtool authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "breathe", "reference"]
root_doc = "docs/index"
# C with Jinja in it; mt_model is a struct and a variable.
suppress_warnings = ["misc.highlighting_failure", "duplicate_declaration.c"]
include_patterns = ["*.md", "docs/**", "examples/*/README.md", "crt/PROTOCOL.md"]
exclude_patterns = ["build"]

smartquotes_action = "qe"  # no dashes: --board
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "inherited-members": False}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

breathe_projects_source = {"mtool": (str(ROOT / "crt" / "include"), ["mtool.h", "mt_rpc.h"])}
breathe_default_project = "mtool"
breathe_domain_by_extension = {"h": "c"}
breathe_doxygen_config_options = {
    "INPUT_FILTER": f"{sys.executable} {ROOT}/docs/header_filter.py",
    "EXTRACT_ALL": "YES",
    "OPTIMIZE_OUTPUT_FOR_C": "YES",
    "JAVADOC_AUTOBRIEF": "YES",
}

html_theme = "furo"
html_title = "mtool"
html_show_sphinx = False
html_copy_source = False


def process_docstring(_app: Sphinx, what: str, _name: str, _of: object, _options: Any, lines: list[str]) -> None:
    """Make the list of a class's fields a section, before napoleon reads it; leave the package's docstring out."""
    if what == "module":
        lines.clear()
    begins = next((i for i, line in enumerate(lines) if re.match(r"[a-z_]+(, [a-z_]+)*: ", line)), None)
    if what == "class" and begins is not None and "Attributes:" not in lines:
        ends = next((i for i in range(begins, len(lines)) if not lines[i]), len(lines))
        lines[begins:ends] = ["Attributes:", *(f"    {line}" for line in lines[begins:ends])]


def setup(app: Sphinx) -> None:
    """Connect the hooks."""
    app.connect("autodoc-process-docstring", process_docstring, priority=400)
    # where breathe runs Doxygen on breathe_projects_source
    app.config.breathe_projects = {"mtool": f"{Path(app.doctreedir).parent}/breathe/doxygen/mtool/xml"}
