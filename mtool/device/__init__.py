"""The device half: build, flash, transport, RPC, session, cycles. Of the compile half it knows `mtool.json`."""
