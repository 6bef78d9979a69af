# One word for everything: `make demo`, `make test`. A fresh clone needs nothing before them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
CLIENT := build/claude-code
CLIENT_VERSION := $(shell cat tests/agents/client/version.txt)
AXE_VERSION := $(shell cat tests/viewer/axe-version.txt)
JS     := build/js
VIEWER := src/claude_mem/data/viewer tests/viewer/js

.PHONY: demo team quick coverage figures test test-again test-long test-hosts test-crash test-crash-long proof fuzz run lint lint-js types docs docs-site bench client agents browser axe clean wheel lock

# KEEP=1 leaves a worker with some days of history running, to look at in a browser.
demo: $(READY)
	@$(BIN)/python -m demo.replay $(if $(KEEP),--keep)

# A team server: PostgreSQL, two nodes, an organisation with three members; prints how to connect. Ctrl-C deletes it.
team: $(READY)
	@$(BIN)/python -m demo.team $(if $(PORTS),--ports $(PORTS))

# What to run while working: lint, types, and the tests that need no agent, no browser and no other process.
quick: $(READY) lint types
	$(BIN)/python -m pytest -q -n 2 tests/unit </dev/null

# Line coverage of `src` by the same tests. The floor is raised when the figure rises, never lowered.
COVERAGE_FLOOR := 53
coverage: $(READY)
	$(BIN)/python -m coverage run --source src/claude_mem -m pytest -q tests/unit </dev/null
	$(BIN)/python -m coverage report --format=total --fail-under $(COVERAGE_FLOOR)

# Figures about the code base beside two projects we learn from.
figures: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/figures procrastinate==3.10.0
	$(BIN)/python -m tools.figures src/claude_mem starlette build/figures/procrastinate

# With bytecode, whatever the environment says: without it each process would compile all tests again at every run.
test: $(READY) client build/agents/codex/.ready browser axe lint types
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadgroup </dev/null

# Only what failed in the last run, one after the other. Fails if nothing was noted, as when lint or types failed.
test-again: $(READY)
	@echo "These tests failed, and are run again alone; any that pass now are unreliable and must be fixed:"
	@$(BIN)/python -m pytest --cache-show 'cache/lastfailed' | sed -n "s/^ *{\{0,1\}'\(.*\)': True.*/  \1/p"
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --last-failed --last-failed-no-failures none </dev/null

# The same with every generated input: more of them than a change usually needs.
test-long: export CLAUDE_MEM_LONG := 1
test-long: test

# Every agent that can be had from a registry, the real program, against scripted models.
test-hosts: $(READY) client agents
	$(BIN)/python -m pytest -n 2 --dist loadgroup tests/agents tests/agents/client

# Kills, power cuts, failing disks, turned clocks, races: more than 600 kills in about four minutes; 3,000 in the long one.
CRASH_SUITES := kills io_errors powerloss clock processes
test-crash: export CLAUDE_MEM_PROOF := $(CURDIR)/build/proof
test-crash: export CLAUDE_MEM_KILL_ROUNDS ?= 3
test-crash: $(READY)
	rm -f $(CRASH_SUITES:%=build/proof/%.json)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -o timeout=900 tests/reliability/test_kills.py tests/reliability/test_chores.py \
	  tests/reliability/test_io_errors.py tests/reliability/test_powerloss.py tests/reliability/test_clock.py tests/reliability/test_processes.py

test-crash-long: export CLAUDE_MEM_KILL_ROUNDS := 15
test-crash-long: test-crash

# What takes minutes, not seconds: the suites measure what they promise and leave the figures in build/proof, of which
# docs/proof.md is written: about 40 minutes. It fails if a test does, or if a goal is missed of which docs/goals.toml does
# not say why.
PROOF_SUITES := $(wildcard $(addprefix tests/,security/test_port.py security/test_wire.py security/test_box.py worker/test_schema.py \
  security/test_fuzz.py reliability/test_damage.py reliability/test_keeping.py \
  security/test_secrets.py security/test_withheld.py security/test_scrub.py security/poison \
  storage/test_forget.py worker/test_audit.py security/test_egress.py security/test_hook_fuzz.py \
  security/test_bad_input.py security/test_patterns.py storage/test_search.py storage/test_projects.py \
  security/test_paths.py security/test_privacy.py security/test_visits.py unit/test_context.py \
  storage/test_git_files.py storage/test_repositories.py security/test_environment.py security/test_ownership.py \
  viewer/test_xss.py storage/test_upgrades.py reliability/test_disk.py reliability/test_room.py \
  models/test_faults.py models/test_spending.py reliability/test_crowd.py \
  security/test_large_transcripts.py security/test_secret_shapes.py security/test_terminal.py \
  security/test_hostile_backups.py security/test_hostile_imports.py \
  reliability/test_small_files.py reliability/test_unstarted.py))
# Of these suites only what has figures: the rest of them is in `make test`.
PROOF_TESTS := tests/models/test_conformance.py tests/models/test_claude.py
proof: export CLAUDE_MEM_PROOF := $(CURDIR)/build/proof
proof: $(READY) client browser
	rm -rf build/proof
	failed=0; \
	$(MAKE) fuzz || failed=1; \
	$(MAKE) test-crash || failed=1; \
	$(BIN)/python -m pytest -n 3 --dist loadgroup -o timeout=900 $(PROOF_SUITES) || failed=1; \
	$(BIN)/python -m pytest -n 2 --dist loadgroup -o timeout=900 -k "no_key_and_no_address or itself" $(PROOF_TESTS) || failed=1; \
	$(BIN)/python bench/soak.py; $(BIN)/python bench/crowd.py; \
	$(BIN)/python docs/prove.py && exit $$failed

# Inputs that reach new lines of our readers, found by coverage. Where there is no wheel of atheris, hypothesis must do.
FUZZ_SECONDS ?= 60
fuzz: export CLAUDE_MEM_PROOF := $(CURDIR)/build/proof
fuzz: $(READY)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: atheris==3.0.0
	for target in scanner parser reader renderer; do $(BIN)/python -m tests.support.fuzz_atheris $$target $(FUZZ_SECONDS) || exit 1; done

run: $(READY)
	$(BIN)/claude-mem serve

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.words
	$(BIN)/codespell
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory lint-js; else echo "no npm: the viewer is not checked"; fi

# The viewer has no build step: these tools only check it.
lint-js: $(JS)/.ready
	$(JS)/node_modules/.bin/eslint -c $(JS)/eslint.config.js $(VIEWER)
	$(JS)/node_modules/.bin/prettier --config tools/js/prettier.json --log-level warn --check $(VIEWER:%="%/**/*.{js,mjs}")
	$(JS)/node_modules/.bin/tsc -p tools/js/tsconfig.json

$(JS)/.ready: tools/js/package.json tools/js/package-lock.json tools/js/eslint.config.js
	mkdir -p $(JS)
	cp tools/js/package.json tools/js/package-lock.json tools/js/eslint.config.js tools/js/.npmrc $(JS)/
	npm ci --silent --prefix $(JS)
	touch $@

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/generate.py

# The documentation as a site, in build/site. MkDocs is installed on first use: only this target needs it.
docs-site: $(READY)
	$(BIN)/python -c "import material" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.6,<10'
	$(BIN)/python -m mkdocs build --strict

bench: $(READY) browser
	$(BIN)/python bench/memories.py
	$(BIN)/python bench/living.py
	$(BIN)/python bench/living_starts.py
	$(BIN)/python bench/living_scale.py
	$(BIN)/python bench/moments.py
	$(BIN)/python bench/uses.py
	$(BIN)/python bench/files_to_come.py
	$(BIN)/python bench/rereading.py
	$(BIN)/python bench/alarms.py
	$(BIN)/python bench/redactions.py
	$(BIN)/python bench/spending.py
	$(BIN)/python bench/recall.py
	$(BIN)/python bench/install.py
	$(BIN)/python bench/backfill.py
	$(BIN)/python bench/viewer.py
	$(BIN)/python bench/crowd.py
	$(BIN)/python bench/server.py
	$(BIN)/python bench/run.py

# The real Claude Code, at the version the tests are written against. The native binary does not need node to run.
client: $(CLIENT)/.$(CLIENT_VERSION)
$(CLIENT)/.$(CLIENT_VERSION): tests/agents/client/version.txt
	npm install --silent --no-fund --no-audit --ignore-scripts --prefix $(CLIENT) @anthropic-ai/claude-code@$(CLIENT_VERSION)
	touch $@

# A real browser for the viewer's tests, and the checker of accessibility that runs inside it.
browser:
	@sh tests/viewer/browser.sh

axe: build/axe/.$(AXE_VERSION)
build/axe/.$(AXE_VERSION): tests/viewer/axe-version.txt
	npm install --silent --no-fund --no-audit --ignore-scripts --prefix build/axe axe-core@$(AXE_VERSION)
	touch $@

# The other agents, each in a folder of its own.
agents: $(patsubst %,build/agents/%/.ready,$(shell cut -d' ' -f1 tests/agents/versions.txt))
build/agents/%/.ready: tests/agents/versions.txt
	npm install --silent --no-fund --no-audit --prefix build/agents/$* $$(sed -n 's/^$* //p' tests/agents/versions.txt)
	touch $@

# Byte-compiled, because imports then cost half; from the lock, so that everyone tests the same.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  --no-binary claude-agent-sdk -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

wheel: $(READY)
	$(BIN)/python -m hatchling build -t wheel -d build/wheel

# Anyone with `uv` may renew the lock.
lock:
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
