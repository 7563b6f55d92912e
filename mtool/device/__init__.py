"""The device half: build, flash, transport, RPC, session, cycles. It knows the compiled models by `mtool.json`."""
