# Names for the commands that are typed most; the work is in scripts/.

.PHONY: check test lint bench golden

check:          ## everything that CI checks
	scripts/test

test:           ## the tests alone
	scripts/setup --dev
	PATH="$(CURDIR)/.venv/bin:$(PATH)" .venv/bin/pytest -q -n 2

lint:           ## format, style, types, layers
	scripts/setup --dev
	scripts/lint

bench:          ## instructions, flash and RAM of the example on an emulated Cortex-M4
	scripts/setup
	.venv/bin/mtool bench examples/digits/digits_int8.onnx --board mps2_an386

golden:         ## write the generated C of tests/golden anew; read the diff
	scripts/setup --dev
	MTOOL_UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/codegen
