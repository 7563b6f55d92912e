"""What of generated C is inside of one source: it becomes static, and what nobody calls then is left out."""

import re
from collections.abc import Collection, Iterator, Sequence

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\w+|[.>]\s*\w+', re.DOTALL)
_STATIC = re.compile(r"^static [^;={(\n]*?\b(\w+)(?= ?[(\[;=])|^\} (\w+);$", re.MULTILINE)
_ATTRIBUTE = r"__attribute__\(\(\w+\(\d+\)\)\) "
# A declaration at the beginning of a line, as codegen writes it; a structure's name alone is none.
_DECLARED = re.compile(
    rf"^(?:/\*(?:(?!\*/).)*\*/\n)?(?:extern )?(?!struct \w+;)(?P<type>(?:{_ATTRIBUTE})?[A-Za-z_][\w ]*?[ *]+)"
    r"(?P<name>\w+)(?P<rest>\([^;{}]*?\)|(?:\[\w*\])*);\n",
    re.MULTILINE | re.DOTALL,
)
# The beginning of a definition: of a function the whole head, of anything else up to its name.
_DEFINED = re.compile(
    rf"^(?!static |extern |typedef |return |else |struct \w+ \{{)(?P<head>(?:{_ATTRIBUTE})?[A-Za-z_][\w ]*?[ *]+)"
    r"(?P<name>\w+)(?P<rest>\([^;{}]*?\)\n(?=\{)|(?=\[| = ))",
    re.MULTILINE,
)


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return {*_WORD.findall(text)}


def declared(text: str) -> set[str]:
    """Return the names that a header of the model declares."""
    return {found["name"] for found in _DECLARED.finditer(text)}


def only_named(text: str, named: Collection[str]) -> str:
    """Return a header's text without the declarations of what is not `named`."""
    return _DECLARED.sub(lambda found: found[0] if found["name"] in named else "", text)


def made_static(text: str, private: Collection[str]) -> str:
    """Return a source whose definitions of `private` names are static.

    Objects are defined before they are used, so that their declarations go; functions keep theirs. A function that is
    not called any more is left out.
    """
    defined = {found["name"]: bool(found["rest"]) for found in _DEFINED.finditer(text) if found["name"] in private}

    def declaration(found: re.Match[str]) -> str:
        if not defined.get(found["name"], True):
            return ""
        if found["name"] not in defined:
            return found[0]
        start = found.start("type") - found.start()
        return f"{found[0][:start]}static {_shifted(found[0][start:])}"

    def definition(found: re.Match[str]) -> str:
        return f"static {_shifted(found[0])}" if found["name"] in defined else found[0]

    text = _DEFINED.sub(definition, _DECLARED.sub(declaration, text))
    for name in [name for name, is_function in defined.items() if is_function]:
        text = _without_unused(text, name)
    return text


def _shifted(head: str) -> str:
    """Return a head of several lines, all but the first as far on as `static` makes it."""
    return head.replace("\n ", "\n" + " " * len(" static "))


def _without_unused(text: str, name: str) -> str:
    """Return a source without a static function that nothing calls, unless its declaration allows that."""
    uses = [*re.finditer(rf"\b{name}\b", text)]
    lines = [text[text.rfind("\n", 0, use.start()) + 1 : use.start()] for use in uses]
    if any(not line.startswith("static ") or "MT_ALONE" in line for line in lines):
        return text
    prototype = rf"(?:/\*(?:(?!\*/).)*\*/\n)?^static [\w *]+\b{name}\([^;{{}}]*?\);\n"
    function = rf"(?:/\*(?:(?!\*/).)*\*/\n)?^static [\w *]+\b{name}\([^;{{}}]*?\)\n\{{\n.*?^\}}\n"
    return re.sub(f"{function}|{prototype}", "", text, flags=re.MULTILINE | re.DOTALL)


def apart(parts: Sequence[tuple[str, str]], header: str) -> Iterator[str]:
    """Yield texts of several models, of which each is (model, text), so that no two have a static of one name.

    The names that they get are in none of the texts, nor in the header that all of them include.
    """
    statics = [{found[1] or found[2] for found in _STATIC.finditer(text)} for _, text in parts]
    owners: dict[str, set[str]] = {}
    for (model, _), names in zip(parts, statics, strict=True):
        for name in names:
            owners.setdefault(name, set()).add(model)
    taken = {name for name, models in owners.items() if len(models) > 1}
    known = words(header).union(*(words(text) for _, text in parts)) if taken else set()
    for (model, text), names in zip(parts, statics, strict=True):
        mine = {name: _free(f"{model}_{name}", known) for name in names & taken}
        yield _TOKEN.sub(lambda token, own=mine: own.get(token[0], token[0]), text) if mine else text  # type: ignore[misc]


def _free(name: str, known: Collection[str]) -> str:
    """Return a name that is not known yet: `kws_run` is the entry point's, and a static `run` gets `kws_run_`."""
    while name in known:
        name += "_"
    return name
