"""No module imports itself indirectly, including under TYPE_CHECKING and inside functions.

The import contracts in pyproject.toml hold the layers, and packages beside one another. This holds a package against
its own modules too.
"""

import graphlib

import grimp


def test_no_module_is_in_a_circle_of_imports() -> None:
    graph = grimp.build_graph("mtool", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert imports["mtool.device.session.profile"] >= {"mtool.device.rpc", "mtool.manifest"}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle's modules
