"""`mtool cache`: earlier compilations and builds that are kept for reuse."""

from mtool.base import plural
from mtool.cli.output import Output


def cache(out: Output, clear: bool = False) -> None:
    """Show what is kept from earlier compilations and builds, or remove it.

    The same model, board, options, mtool and compiler give the same C and firmware, so these are made only once.
    MTOOL_CACHE is another folder, or "off"; MTOOL_CACHE_LIMIT is the size limit (200M, 1G; default: 512M), beyond which
    the least recently used entries are removed.
    """
    from mtool.base import cache as cache_store

    folder = cache_store.of_user()
    if folder is None:
        out.result({"folder": None, "entries": 0, "bytes": 0})
        out.text(f"nothing is kept: {cache_store.VARIABLE} is {cache_store.OFF}, or there is no home folder")
        return
    content = folder.clear() if clear else folder.content()
    did = "removed" if clear else "kept"
    out.result({"folder": str(folder.folder), did: content.entries, "bytes": content.size, "limit": folder.limit})
    out.text(f"{folder.folder}")
    entries = plural.count(content.entries, "entry")
    out.text(f"{did}: {entries}, {content.size / 2**20:.1f} MB of {folder.limit / 2**20:,.0f} MB")
