"""The files of backends, which a model's own stand beside."""

from mtool.errors import BuildError
from mtool.ops.external.node import External
from mtool.plan import Plan
from mtool.plan.control import plans_in


def external_files(plan: Plan) -> dict[str, bytes]:
    """Return the files that the regions of a plan need, by path in the model's folder.

    Raises:
        BuildError: two regions have different files of one name, or one has a file of the model's own.
    """
    own, found = f"{plan.graph.name}", dict[str, bytes]()
    for step in (step for one in plans_in(plan) for step in one.steps):
        if not isinstance(step.node.attrs, External):
            continue
        for path, data in step.node.attrs.files.items():
            is_own = path.startswith((f"{own}.", f"{own}_")) or path == "mtool.json"
            if is_own or found.setdefault(path, data) != data:
                raise BuildError(
                    f"the backend {step.node.attrs.backend} has a file {path}, as "
                    f"{'the model itself has' if is_own else 'another region has, with other bytes'}",
                    details=[f"for {step.node.name}"],
                )
    return found
