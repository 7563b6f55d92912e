"""The site's pages that lie outside docs/: README.md is its first page, and links lead from one to the other.

A hook of mkdocs (mkdocs.yml names it). Links are written as they work in the repository; here they are made those of
the site.
"""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OTHERS = {  # a file of the repository: its place in the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE",
    **{
        path.relative_to(ROOT).as_posix(): f"examples/{path.parent.name}.md"
        for path in sorted((ROOT / "examples").glob("*/README.md"))
    },
}
SOURCES = {place: source for source, place in OTHERS.items()}
LINK = re.compile(r"(?<=\]\()([^)#:]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for source, place in OTHERS.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make a page's links those of the site."""
    place = page.file.src_uri
    folder = PurePosixPath(SOURCES.get(place, f"docs/{place}")).parent

    def moved(link: re.Match[str]) -> str:
        target = os.path.normpath(folder / link[1])
        if target not in OTHERS and not target.startswith("docs/"):
            return link[1]  # which mkdocs then reports
        goal = OTHERS.get(target) or target.removeprefix("docs/")
        return os.path.relpath(goal, PurePosixPath(place).parent)

    return LINK.sub(moved, markdown)
