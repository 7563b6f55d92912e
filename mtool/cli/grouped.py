"""A command whose help tells its options in groups: its own first, then those of a subject, by their panels."""

from typing import Any

from typer.core import TyperArgument, TyperCommand

LIST = "--options"
"""The option of commands that lists the options of a template."""

_OWN = "Options"
_LAST = "Every command"


class GroupedCommand(TyperCommand):
    """Tell options by group. With --options, which lists those of a template, no other argument is asked for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        if any(LIST in parameter.opts for parameter in self.params) and LIST in args:
            for parameter in self.params:
                parameter.required = False
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for the arguments and one for each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], _OWN: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            panel = getattr(parameter, "rich_help_panel", None)
            is_help = "--help" in parameter.opts
            name = "Arguments" if isinstance(parameter, TyperArgument) else _LAST if is_help else str(panel or _OWN)
            groups.setdefault(name, []).append(record)
        groups[_LAST] = groups.pop(_LAST, [])
        for name, rows in groups.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
