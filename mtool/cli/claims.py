"""Who computes which operator of a model, as a table."""

from typing import TYPE_CHECKING

from mtool.base.escaping import short_name
from mtool.cli.output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtool.cli.fitted import Fitted
    from mtool.manifest import Claim


def claims_table(claims: "Sequence[Claim]") -> "Fitted":
    """Return a table of who computes each operator that backends were asked for, and why the others do not."""
    rows = [
        [
            short_name(one.operator),
            one.kind,
            f"{one.backend} ({one.region})" if one.backend else "C",
            "; ".join(f"{refusal.backend}: {refusal.reason}" for refusal in one.refusals),
        ]
        for one in claims
    ]
    return table(("operator of the model", "", "computed by", "why not by others"), rows, folds=True)
