"""New bytes as a delta from old ones, which firmware decodes as it arrives (crt/include/mt_delta.h).

Weights that were trained a little further differ by small steps in most bytes, so that no long runs are equal: what is
coded is the differences, by how likely they are beside those before, and not copies as in most formats. As bsdiff
(Percival, Naive differences of executable code, 2003), whose differences are left to a general compressor.
"""

from mtool.manifest.delta.encoding import MOST_BYTES, delta, delta_by_parts

__all__ = ["MOST_BYTES", "delta", "delta_by_parts"]
