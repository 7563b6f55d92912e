# Names for the commands that are typed most; the work is in scripts/.

# onnxruntime sends no reports from scripts that import it themselves.
export ORT_DISABLE_TELEMETRY = 1

.PHONY: check quick test test-all lint bench bench-compile bench-layers bench-cycles bench-farm bench-host bench-tune aot-table timing-table bit-flips slide-table quantize-table schedule-table sizes figures outputs docs screenshots golden fuzz prove fuzz-models fuzz-networks onnx-backend model-zoo soak

check:          ## all checks of CI
	scripts/test

quick:          ## checks for one minute: a smoke set, and the tests of what has changed since main
	scripts/test --quick

test:           ## only the tests
	scripts/setup --dev
	PATH="$(CURDIR)/.venv/bin:$(PATH)" .venv/bin/pytest -q -n 2

test-all:       ## all tests: the slow ones, and every combination instead of CI's sixteenth; PyTorch's exporter with mtool-mcu[exported]
	scripts/setup --all
	MTOOL_TESTS=all PATH="$(CURDIR)/.venv/bin:$(PATH)" .venv/bin/pytest -q -n 2

lint:           ## format, style, types, layers
	scripts/setup --dev
	scripts/lint

bench:          ## every model on every emulated board, compared with other tools: docs/benchmarks.md
	scripts/setup --dev
	.venv/bin/python scripts/bench.py

bench-compile:  ## mtool's own run time, from --help to a model of 100 MB: docs/compile-time.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_compile.py

bench-layers:   ## single layers on emulated cores, before and after: docs/layers.json, read by make bench
	scripts/setup --dev
	.venv/bin/python scripts/bench_layers.py --update $(ARGS)

bench-cycles:   ## the cycle estimate against published results; TINY=FOLDER with their clones (scripts/bench_cycles.py): docs/cycles.md
	.venv/bin/python scripts/bench_cycles.py $(TINY)

bench-farm:     ## a farm of simulated boards, its throughput and what it survives: docs/farm.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_farm.py $(ARGS)

bench-host:     ## models on this computer: against onnxruntime, calls from Python, many samples: docs/host.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_host.py $(ARGS)

bench-tune:     ## the gain of tuning, on emulated boards: docs/tune-gains.md
	scripts/setup --dev
	.venv/bin/python scripts/bench_tune.py $(ARGS)

aot-table:      ## the cost of each calling convention: docs/aot-table.md
	scripts/setup --dev
	.venv/bin/python scripts/aot_table.py

timing-table:   ## instructions of each operator for a thousand inputs: docs/timing-table.md
	scripts/setup --dev
	.venv/bin/python scripts/timing_table.py

bit-flips:      ## flipped bits in a running model, with and without --guard, and its cost: docs/guard.md
	scripts/setup --dev
	.venv/bin/python scripts/bit_flips.py $(ARGS)

slide-table:    ## sliding windows, whole and by hops: the table of docs/state.md
	scripts/setup --dev
	.venv/bin/python scripts/slide_table.py

quantize-table: ## accuracy and cost by the weights' bits, ARGS=KEYWORDS: the table of docs/quantize.md
	scripts/setup --dev
	.venv/bin/python scripts/quantize_table.py $(ARGS)

schedule-table: ## each kernel against portable C, at every tail: the table of docs/proofs.md
	scripts/setup --dev
	.venv/bin/python scripts/schedule_table.py $(ARGS)

sizes:          ## measured sizes of code, libraries and templates, for mtool check: mtool/stages/sizes/sizes.json
	scripts/setup --dev
	.venv/bin/python scripts/sizes.py
	.venv/bin/python scripts/sizes.py --templates

figures:        ## the pictures of the documentation, from real runs: docs/figures
	scripts/setup --all
	.venv/bin/python scripts/figures.py $(ARGS)

outputs:        ## run the `$ mtool …` commands of README.md and docs, and update their output there
	scripts/setup --dev
	.venv/bin/python scripts/outputs.py --update

docs:           ## the documentation as a site that reads without a network: build/site/docs/index.html
	scripts/setup --dev
	.venv/bin/python -m sphinx -q -W --keep-going -c docs . build/site

screenshots:    ## mtool report in a browser, in light and dark: docs/figures/report-*.png
	scripts/setup --all
	.venv/bin/python scripts/screenshots.py

golden:         ## update the generated C in tests/golden; review the diff
	scripts/setup --dev
	MTOOL_UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/compiler/codegen

onnx-backend:   ## onnx's backend tests with onnx's own runner, one model at a time
	scripts/setup --dev
	.venv/bin/python scripts/onnx_backend.py $(ARGS)

model-zoo:      ## every model of a folder against LiteRT or onnxruntime, ARGS=FOLDER: docs/model-zoo.md
	scripts/setup --dev
	.venv/bin/python scripts/model_zoo.py $(ARGS)

fuzz:           ## a minute for each fuzz target: FUZZ_TARGETS="loader slots", SECONDS=3600; with atheris the readers of models too
	fuzz/build.sh
	cd build/fuzz && for target in $(or $(FUZZ_TARGETS),server json loader slots delta bytecode); do \
	    mkdir -p corpus/$$target && ./$$target -max_total_time=$(or $(SECONDS),60) -max_len=8000 -timeout=10 \
	        -artifact_prefix=$$target- corpus/$$target ../../fuzz/corpus/$$target || exit 1; done
	PYTHONPATH=. .venv/bin/python fuzz/models.py $(if $(wildcard .venv/lib/*/site-packages/atheris),-max_total_time=$(or $(SECONDS),60)) fuzz/corpus/models

prove:          ## Frama-C's proofs that no input harms the runtime, or the C of models (Debian: frama-c-base)
	scripts/setup --dev
	.venv/bin/python scripts/prove.py $(ARGS)

fuzz-models:    ## mutated ONNX and TFLite models; continues where the last run stopped
	scripts/setup --dev
	.venv/bin/python scripts/fuzz_models.py $(ARGS)

fuzz-networks:  ## random valid networks against onnxruntime; continues where the last run stopped
	scripts/setup --dev
	.venv/bin/python scripts/fuzz_networks.py $(ARGS)

soak:           ## sessions over noisy, slow and unplugged lines for minutes; ARGS="--hours 1": a streaming model
	scripts/setup --dev
	.venv/bin/python scripts/soak.py $(ARGS)
