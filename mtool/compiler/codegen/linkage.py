"""C linkage for what a header declares, where C++ includes it."""

BEGIN = ("#ifdef __cplusplus", 'extern "C" {', "#endif", "")
END = ("#ifdef __cplusplus", "}", "#endif", "")
