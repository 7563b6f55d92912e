# Names for the commands that are typed most; the work is in scripts/.

# onnxruntime sends no reports from scripts that import it themselves.
export ORT_DISABLE_TELEMETRY = 1

.PHONY: check quick test test-all lint bench bench-compile bench-cycles bench-farm bench-host bench-tune aot-table sizes schedules commands reference outputs docs screenshots golden fuzz fuzz-models fuzz-networks onnx-backend model-zoo soak

check:          ## everything that CI checks
	scripts/test

quick:          ## a minute of checks: a smoke set, and the tests of what has changed since main
	scripts/test --quick

test:           ## the tests alone
	scripts/setup --dev
	PATH="$(CURDIR)/.venv/bin:$(PATH)" .venv/bin/pytest -q -n 2

test-all:       ## the tests with every combination of what CI tries a sixteenth of, and the slow ones; with mtool-mcu[exported], PyTorch's exporter too
	scripts/setup --all
	MTOOL_TESTS=all PATH="$(CURDIR)/.venv/bin:$(PATH)" .venv/bin/pytest -q -n 2

lint:           ## format, style, types, layers
	scripts/setup --dev
	scripts/lint

bench:          ## every model on every emulated board, beside what others need: docs/benchmarks.md
	scripts/setup --dev
	.venv/bin/python scripts/bench.py

bench-compile:  ## what mtool itself takes, from --help to a model of 100 MB: docs/compile-time.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_compile.py

bench-cycles:   ## the estimate of cycles beside published runs; TINY: a folder with their clones (scripts/bench_cycles.py): docs/cycles.md
	.venv/bin/python scripts/bench_cycles.py $(TINY)

bench-farm:     ## what a rack of boards gives, and what it survives, with boards that are stood in for: docs/farm.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_farm.py $(ARGS)

bench-host:     ## this computer beside onnxruntime, calls, and many samples: docs/host.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_host.py $(ARGS)

bench-tune:     ## models tuned on emulated boards, and what that gives: docs/tune-gains.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_tune.py $(ARGS)

aot-table:      ## what each calling convention costs: docs/aot-table.md
	scripts/setup --dev
	.venv/bin/python scripts/aot_table.py

sizes:          ## what code, libraries and templates take, for mtool check: mtool/stages/sizes/sizes.json
	scripts/setup --dev
	.venv/bin/python scripts/sizes.py
	.venv/bin/python scripts/sizes.py --templates

schedules:      ## every schedule and its knobs: docs/schedules.md
	scripts/setup --dev
	.venv/bin/python scripts/schedules.py

commands:       ## every command and its options: docs/commands.md
	scripts/setup --dev
	.venv/bin/python scripts/commands.py

reference:      ## the pages that are written from the code: docs/errors.md, docs/files.md
	scripts/setup --dev
	.venv/bin/python scripts/errors.py
	.venv/bin/python scripts/formats.py

outputs:        ## what `$ mtool …` prints in README.md and docs: run again and written there
	scripts/setup --dev
	.venv/bin/python scripts/outputs.py --update

docs:           ## the documentation as a site that reads without a network: build/site/docs/index.html
	scripts/setup --dev
	.venv/bin/python -m sphinx -q -W --keep-going -c docs . build/site

screenshots:    ## mtool report in a browser, in light and dark: docs/figures/report-*.png
	scripts/setup --all
	.venv/bin/python scripts/screenshots.py

golden:         ## write the generated C of tests/golden anew; read the diff
	scripts/setup --dev
	MTOOL_UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/compiler/codegen

onnx-backend:   ## onnx's own backend tests, by its own runner, one model at a time
	scripts/setup --dev
	.venv/bin/python scripts/onnx_backend.py $(ARGS)

model-zoo:      ## every model of a folder against LiteRT or onnxruntime, ARGS=FOLDER: docs/model-zoo.md
	scripts/setup --dev
	.venv/bin/python scripts/model_zoo.py $(ARGS)

fuzz:           ## ten minutes of libFuzzer on the runtime: server, loader of modules, deltas, bytecode
	scripts/setup --dev
	.venv/bin/python scripts/fuzz.py $(ARGS)

fuzz-models:    ## minutes of mutated ONNX and TFLite models; goes on where the last run stopped
	scripts/setup --dev
	.venv/bin/python scripts/fuzz_models.py $(ARGS)

fuzz-networks:  ## minutes of random valid networks against onnxruntime; goes on where the last run stopped
	scripts/setup --dev
	.venv/bin/python scripts/fuzz_networks.py $(ARGS)

soak:           ## some minutes of sessions over noisy, slow and unplugged lines
	scripts/setup --dev
	.venv/bin/python scripts/soak.py
