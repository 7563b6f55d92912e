"""Where a file of a model goes in a package."""


def placed(name: str, source_place: str, header_place: str, of_cores: tuple[str, ...] = ()) -> str:
    """Return the folder of a file, by its path in the model's.

    A folder of a backend's stays whole beside the model's sources, which alone include its headers; the headers of a
    core, in one of `of_cores`, are beside those that lead to them. A .bin lies beside the headers: the assembler looks
    for it where the compiler looks for them.
    """
    of_backend = "/" in name and name.endswith(".h") and not name.startswith(of_cores or ("/",))
    return source_place if name.endswith(".c") or of_backend else header_place
