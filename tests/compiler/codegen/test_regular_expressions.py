"""Generated C is emitted from structure: the modules that still use regular expressions, and on what."""

from pathlib import Path

import mtool

FOLDERS = (
    "compiler/codegen",
    "compiler/plan",
    "compiler/bytecode",
    "compiler/run_time_sizes",
    "project",
    "stages/sizes",
)
OTHER_TEXTS = {  # what they read was not generated
    "compiler/plan/pool.py": "names of sections, which a user writes",
    "compiler/run_time_sizes/lowering.py": "where an error is, in a model's file",
    "project/package.py": "what a user says of a package",
    "project/runtime.py": "the includes of crt/, and of a backend's C",
    "project/single_file.py": "the includes of crt/, and of what includes it",
    "project/sandbox.py": "templates, which are a user's own",
    "project/template.py": "templates, which are a user's own",
}
GENERATED = {  # what they read was generated: this list may only become shorter
    "compiler/codegen/c_text.py": "the bodies of functions, as templates lay them out; tokens",
}


def test_only_the_listed_modules_use_regular_expressions() -> None:
    root = Path(mtool.__file__).parent
    paths = (path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    found = {path.relative_to(root).as_posix() for path in paths if "\nimport re\n" in path.read_text()}
    assert found == {*OTHER_TEXTS, *GENERATED}
