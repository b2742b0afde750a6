# make          build, install, fetch the model, make a home if there is none, open the screen
# make test     every test, with the real small model
# make help     the rest
#
# Everything lives in .venv (this checkout, installed editable) and in the user's cache folder, where
# the compiled llama.cpp and the model survive `make clean` and serve the next clone.

PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := run
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

bin := .venv/bin
python = PYTHONPATH=$(CURDIR):$$(printf '%s:' $(CURDIR)/tests/*/) $(bin)/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
docs_tests := $(wildcard tests/whole/test_docs*.py)

# The data root, as appliance/runtime/paths.py decides it; expanded by the shell.
home := $${OWLBOX_HOME:-$${XDG_DATA_HOME:-$$HOME/.local/share}/owlbox}
cache := $${XDG_CACHE_HOME:-$$HOME/.cache}/owlbox

.PHONY: run install dev model test proof check spec bench bench-spine bench-folder bench-engine bench-entries bench-retrieval bench-ingest bench-packet bench-calls bench-hello bench-queue bench-sandbox bench-roles bench-screen bench-page bench-idle bench-burst bench-mcp bench-written bench-soak servers two-servers bench-remote chaos crash-images conformance accessibility everyday image image-test image-cuts image-sandbox root-cuts root-updates bundle release docs captures train-language bench-answerable clean help

run: install ## open the screen; first time: install, model, owlbox init
	@test -e "$(home)/owlbox.toml" || $(bin)/owlbox init
	@compgen -G "$(home)/models/*.gguf" >/dev/null || { $(bin)/owlbox model add smollm2; $(bin)/owlbox model add minilm; }
	@exec $(bin)/owlbox

install: .venv/.stamp ## build .venv with owlbox in it (WHEELS=folder or address of a release, UPDATE_KEY=its public key: compile nothing)

dev: .venv/.stamp-dev ## install, with what tests and checks need

model: install ## fetch the bundled models into the cache; no home needed
	@{ compgen -G "$(cache)/models/SmolLM2*.gguf" && compgen -G "$(cache)/models/all-MiniLM*.gguf"; } >/dev/null || { \
	    scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	    $(bin)/owlbox --home "$$scratch/home" init >/dev/null; \
	    $(bin)/owlbox --home "$$scratch/home" model add smollm2; \
	    $(bin)/owlbox --home "$$scratch/home" model add minilm; }

# Without compiled files every start of a process would compile the whole package, and each of pytest's too.
unexport PYTHONDONTWRITEBYTECODE

test: dev model servers ## every test
	$(python) tests/suite.py

proof: dev model servers ## what tests try a part of, tried whole: every sentence, crash point and command, ten minutes of chaos, the whole model
	PROOF=1 $(python) tests/suite.py -n 2 $$(grep -rl '^from proof import' tests)

check: dev ## style, types, layers, requirement map, reference documents
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/pytest -q tests/test_layers.py tests/test_spec.py $(docs_tests)

spec: dev ## which requirement has a test, per capability
	@$(python) tests/spec.py

bench: dev model servers ## one table beside llama.cpp, llm, huey, FTS5, bubblewrap and elia, in 20 minutes (ONLY=queue,sandbox: some rows)
	$(python) tests/bench/bench_table.py --only "$(ONLY)"

bench-spine: dev model ## start, idle cost, prompt and turns of the bundled model
	$(python) tests/bench/bench_spine.py

bench-folder: dev ## the folder: 500 files at once, one edit, and the cost of waiting
	$(python) tests/bench/bench_folder.py

bench-engine: dev model ## the local engine: prefixes, turns, calls, answers, embedding
	$(python) tests/bench/bench_engine.py

bench-page: ## milliseconds of the processor by which the page draws texts of 100 kB that hold up a renderer
	node tests/bench/bench_page.mjs

bench-entries: dev ## entries beside plain SQL, the cost of undo, a large fork
	$(python) tests/bench/bench_entries.py

bench-ingest: dev ## adding Python's library and 2,000 notes: time, memory, killed and resumed, a second time
	$(python) tests/bench/bench_ingest.py

two-servers: dev model ## two real servers of models behind one pool, one killed in an answer
	PYTHONPATH=.:tests/support $(python) tests/bench/bench_two_servers.py

train-language: dev model ## fit the weights of evidence and of the classifier of requests, from the sets of this repository
	PYTHONPATH=.:tests/support $(python) tests/bench/train_language.py

bench-answerable: dev model ## whether the score that decides tells what notes answer from what they do not (SQUAD=file for SQuAD 2.0 as well)
	PYTHONPATH=.:tests/support $(python) tests/bench/bench_answerable.py $(if $(SQUAD),--data $(SQUAD))

bench-retrieval: dev model ## finding: recall on LoCoMo (LOCOMO=file), latency and size beside FTS5 and numpy
	$(python) tests/bench/bench_retrieval.py

bench-packet: dev ## what a turn's prompt costs to make and to read again, beside the whole history
	$(python) tests/bench/bench_packet.py

bench-calls: dev model ## the whole function-calling set beside llama-cpp-python's own handler
	$(python) tests/bench/bench_calls.py --all

everyday: dev model ## everyday prompts against a core with MODEL=FILE.gguf, where the set of them lies beside this checkout
	@test -e ../shared/lab/everyday/run.py || { echo "there is no ../shared/lab/everyday/run.py"; exit 1; }
	$(python) ../shared/lab/everyday/run.py --owlbox $(bin)/owlbox --model "$${MODEL:-$$(ls $(cache)/models/SmolLM2*.gguf)}" \
	    --model "$$(ls $(cache)/models/all-MiniLM*.gguf)"

bench-hello: dev model ## what "hello" costs beside llama-cpp-python alone with the same file
	$(python) tests/bench/bench_hello.py

bench-queue: dev ## claims beside huey's SqliteHuey, and 16 processes over 5,000 tasks with dependencies
	$(python) tests/bench/bench_queue.py

bench-sandbox: dev ## a sandboxed call beside a bare subprocess and plain bubblewrap
	$(python) tests/bench/bench_sandbox.py

bench-idle: dev servers ## ten minutes of doing nothing: model calls, bytes written, wake-ups, memory, for whatever can be switched on
	$(python) tests/bench/bench_idle.py

bench-burst: dev servers ## 1,000 messages of ten people at once through mail, Matrix and Slack: none lost or twice, memory, who waits
	$(python) tests/bench/bench_burst.py

bench-written: dev ## bytes written to the disk in an idle hour and for 100 messages, beside SQLite as it is by itself
	$(python) tests/bench/bench_written.py

bench-soak: dev ## an hour of mixed load on a core: its memory has to stay level within 3 MB (MINUTES=60)
	$(python) tests/bench/bench_soak.py --minutes $(or $(MINUTES),60)

bench-screen: dev ## the screen over a real sshd: first paint, echo, bytes, memory, idle cost (BESIDE=program SHOWS=text: beside it)
	$(python) tests/bench/bench_screen.py $(if $(BESIDE),--beside "$(BESIDE)" --beside-shows "$(SHOWS)")

bench-roles: dev ## a delegation beside a plain call, and the tokens of a task of ten steps handed over and not
	$(python) tests/bench/bench_roles.py

bench-mcp: dev servers ## a call of a server's tool through the bridge beside the protocol's own client, and idle cost
	$(python) tests/bench/bench_mcp.py

servers: ## fetch the servers of tools that tests talk to, and the command llm, into the cache
	@tests/servers/fetch.sh >/dev/null

bench-remote: dev ## what asking a remote model costs beside the provider, beside llm and the openai client
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	    $(PYTHON) -m venv "$$scratch/venv"; "$$scratch/venv/bin/pip" install -q llm openai; \
	    $(python) tests/bench/bench_remote.py --others "$$scratch/venv/bin/python"

chaos: dev ## ten minutes of kills, power cuts, full disks and clock jumps while everything flows; then all is counted (SABOTAGE=1: ten broken builds)
	$(python) tests/support/chaos.py $(if $(SABOTAGE),--sabotage,--length 600)

crash-images: dev ## power cuts of a busy home's disk by its recorded writes, mounted and looked at (CUTS=300, SEED=n); as root
	$(python) tests/support/crash_images.py --cuts $(or $(CUTS),300) $(if $(SEED),--seed $(SEED))

conformance: dev ## the protocol's own suite against our MCP client; by hand, needs npm and network
	$(python) tests/conformance/run.py

accessibility: dev ## judge the web page by the rules of axe-core, with pictures of it; by hand, needs npm, network and chromium
	$(python) tests/accessibility/run.py

image: install model ## the image of a card for a Raspberry Pi (ARCH=amd64: for a PC; UPDATE_KEY=FILE: whose updates it takes); as root
	image-build/build.sh $(or $(ARCH),arm64) $(UPDATE_KEY)

bundle: install ## a signed update for an image (KEY=private key, ARCH=amd64: for a PC), in build/bundles
	@test -n "$(KEY)" || { echo "bundle: KEY=FILE names the private key; .venv/bin/python image-build/bundle.py key FILE makes one"; exit 2; }
	$(bin)/python image-build/bundle.py make --for $(or $(ARCH),arm64) "$(KEY)" build/bundles/$(or $(ARCH),arm64)

release: install ## what a release page holds, signed, in build/release/VERSION (KEY=private key, ARCH=amd64: for that machine alone, URL=address)
	@test -n "$(KEY)" || { echo "release: KEY=FILE names the private key; .venv/bin/python image-build/bundle.py key FILE makes one"; exit 2; }
	$(bin)/python release/release.py $(if $(ARCH),--arch $(ARCH)) --url "$(URL)" "$(KEY)"

image-test: install ## boot the image in an emulator and use it over ssh (ARCH=amd64, KEY=FILE: updates, KILLS=50: power cuts, PLAYED=1: no model)
	$(bin)/python image-build/image_test.py --kills $(or $(KILLS),0) $(if $(KEY),--key "$(KEY)") $(if $(PLAYED),--played) "$$(ls -t build/image/owlbox-*-$(or $(ARCH),arm64).img | head -1)"

image-cuts: install ## power cuts of an emulated box with the image alone, going on where the last call ended (ARCH, KEY, KILLS=50, MINUTES, CORES=2, SEED=n, COUNTED=1)
	$(bin)/python image-build/power_cuts.py --cuts $(or $(KILLS),50) --minutes $(or $(MINUTES),600) --cores $(or $(CORES),2) --seed $(or $(SEED),0) $(if $(COUNTED),--counted) $(if $(KEY),--key "$(KEY)") "$$(ls -t build/image/owlbox-*-$(or $(ARCH),arm64).img | head -1)"

image-sandbox: install ## the sandbox's tests on an emulated processor with the image's kernel (ARCH, FILES="tests/...": some); as root
	$(bin)/python image-build/sandbox_test.py --arch $(or $(ARCH),arm64) $(FILES)

root-cuts: install ## power cuts of the root of an image for this kind of machine, without an emulator (ARCH, KEY, CUTS=60, SEED=n); as root
	$(bin)/python image-build/root_cuts.py --cuts $(or $(CUTS),60) --seed $(or $(SEED),0) $(if $(KEY),--key "$(KEY)") "$$(ls -t build/image/owlbox-*-$(or $(ARCH),arm64).img | head -1)"

root-updates: install ## updates of the root of an image for this kind of machine, without an emulator, with the model (KEY=FILE, ARCH); as root
	$(bin)/python image-build/root_updates.py --key "$(KEY)" "$$(ls -t build/image/owlbox-*-$(or $(ARCH),arm64).img | head -1)"

captures: dev model ## pictures of the screen for README and docs/, played to a scripted and to the small model
	$(python) tests/support/captures.py

docs: install ## write the reference documents from the code
	$(bin)/owlbox docs --table --write docs/

clean: ## remove everything built here; the cache and every home stay
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find appliance tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

$(bin)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo 'owlbox needs Python 3.11 or newer; $(PYTHON) is' "$$($(PYTHON) --version 2>/dev/null || echo missing)." \
	        'Choose another: make PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo '$(PYTHON) cannot make virtual environments. Debian: sudo apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv .venv

# compat: a plain path file; the default import hook would cost every start of `owlbox` some 10 ms.
# The wheel again even where one of this version is installed: it may have been made without the changes of llama_patch.py.
.venv/.stamp: pyproject.toml image-build/wheels.sh image-build/llama_patch.py | $(bin)/python
	@wheels=$$(image-build/wheels.sh $(bin)/python) && \
	    $(bin)/python -m pip install -q --no-deps --force-reinstall "$$wheels"/llama_cpp_python-*.whl && \
	    $(bin)/python -m pip install -q --find-links "$$wheels" --config-settings editable_mode=compat -e '.[mcp,web,mail,slack,matrix,docs]'
	@touch $@

.venv/.stamp-dev: .venv/.stamp
	$(bin)/python -m pip install -q --config-settings editable_mode=compat -e '.[dev,mcp,web,mail,slack,matrix,docs]'
	@touch $@
