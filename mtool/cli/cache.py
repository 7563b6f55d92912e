"""`mtool cache`: what was compiled and built before, and is kept to be used again."""

from mtool.cli.output import Output


def cache(out: Output, clear: bool = False) -> None:
    """Tell what is kept of earlier compilations and builds, or remove it.

    The same model, board, options, mtool and compiler give the same C and firmware: they are made once. MTOOL_CACHE
    names another folder, or is "off"; MTOOL_CACHE_LIMIT is how much is kept, the latest used (200M, 1G; else 512M).
    """
    from mtool.base import cache as kept

    found = kept.of_user()
    if found is None:
        out.result({"folder": None, "entries": 0, "bytes": 0})
        out.text(f"nothing is kept: {kept.VARIABLE} is {kept.OFF}, or there is no home")
        return
    content = found.clear() if clear else found.content()
    did = "removed" if clear else "kept"
    out.result({"folder": str(found.folder), did: content.entries, "bytes": content.size, "limit": found.limit})
    out.text(f"{found.folder}")
    out.text(f"{did}: {content.entries:,} entries, {content.size / 2**20:.1f} MB of {found.limit / 2**20:,.0f} MB")
