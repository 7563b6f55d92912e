"""The options of a board's template, as a table: `mtool build --board B --options`."""

from mtool.cli.output import Output, table


def show(out: Output, board: str, template: str) -> None:
    """List the options of a template: each with what it takes, its default, and what it is.

    Raises:
        BoardError: there is no such board.
        UsageError: there is no such template, or the board has none.
    """
    from mtool import boards, project

    chosen, values = project.choose(boards.get(board), template, {})
    rows = []
    for name, option in sorted(chosen.options.items()):
        least = "" if option.minimum is None else f" of at least {option.minimum}"
        takes = ", ".join(option.choices) or {"int": f"a number{least}", "bool": "true, false"}.get(option.type, "text")
        rows.append([name, takes, str(values[name]), option.help])
    out.result(
        {
            "board": board,
            "template": chosen.name,
            "options": {name: option.model_dump(mode="json") for name, option in sorted(chosen.options.items())},
        }
    )
    out.text(f"options of the template {chosen.name}: --option NAME=VALUE")
    out.text(table(("name", "value", "default", ""), rows, folds=True))
