# Everything bootstraps from python3 (3.11 or newer) and make; `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
USABLE := $(VENV)/.usable
PYTEST := $(BIN)/python -m pytest
REPORTS := .test-reports
UI := .ui
UI_READY := $(UI)/.ready
export PYTHONHASHSEED ?= random
# Tests start hundreds of Python processes.  Each would compile all that it imports if none may keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

##@ Use

.PHONY: demo
demo: $(if $(wildcard $(READY)),$(READY),$(USABLE)) ## Show the KEPs' stories on an in-memory cluster, through the real service over real HTTP
	$(BIN)/dra-extender demo

.PHONY: demo-node
demo-node: node-needs $(READY) ## As root: pods on real nodes print the devices that they were given, MIG against vGPU (CAPTURE=1 renews docs/captures)
	$(call build,controlplane nodes)
	$(BIN)/python -m tests.support.node.demo $(if $(CAPTURE),--capture)
	$(if $(CAPTURE),$(BIN)/python -m tests.support.generate)

##@ Check

.PHONY: test
test: $(READY) ## What must be green before a change lands, with only Python and make: lint, documents, unit, property, parity
	$(MAKE) --no-print-directory --jobs lint unit
	@echo 'make test did not run: real components (make verify); searches without an end, soak and coverage (make nightly)'
	@$(BIN)/python -m tests.support.junit $(REPORTS)/unit.xml

.PHONY: verify
verify: $(READY) ## Everything on real components: control plane, chart, image, browser, Prometheus, nodes (PARTS="e2e chart" selects, STRICT=1 fails for a part that the machine cannot run)
	$(BIN)/python -m tests.support.verify $(PARTS) $(if $(STRICT),--strict)

.PHONY: nightly
nightly: $(READY) ## Search without an end, soak and coverage (SECONDS=n for each search)
	$(MAKE) --no-print-directory coverage thorough
	$(MAKE) --no-print-directory simulation SEEDS=10000
	$(MAKE) --no-print-directory soak
	$(MAKE) --no-print-directory contract e2e RELEASES=all
	$(BIN)/python -m tests.simulation --planted --seeds 2000
	$(MAKE) --no-print-directory fuzz hostile chaos SECONDS=$(or $(SECONDS),1800)

.PHONY: lint
lint: $(READY) ## Format, lint, spelling, complexity, types, layers, documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/complexipy app/dra_extender --quiet --max-complexity-allowed $(COGNITIVE_CEILING)
	$(BIN)/lint-imports
	$(BIN)/python -m tests.support.docs_site
	$(BIN)/mypy

.PHONY: docs
docs: $(READY) ## Build the site of the documents into .site/html, strictly: no lost link, nothing loaded from elsewhere
	$(BIN)/python -m tests.support.docs_site

.PHONY: unit
unit: $(READY) ## Unit and property tests, committed parity (K=expression selects)
	$(NO_PROGRAMS) $(PYTEST) $(UNIT) --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")

.PHONY: coverage
coverage: $(READY) ## The unit tests with coverage, which has a floor; no part of `test`
	$(PYTEST) $(UNIT) --junitxml $(REPORTS)/$@.xml --cov --cov-report=term --cov-fail-under=$(COVERAGE_FLOOR)

.PHONY: thorough
thorough: $(READY) ## Property tests with ten times the examples, and the tests that search for minutes; no part of `test`
	$(PYTEST) $(call marked,hypothesis\|support\.examples\|mark\.nightly) -m "not e2e and not chart and not verify" -n $(WORKERS) --dist worksteal \
	  --hypothesis-profile thorough --timeout 3600 --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")

.PHONY: parity
parity: $(READY) ## Labelled decisions of upstream's allocator and CEL compared with ours (FAMILY=cel|groups|... selects)
	$(PYTEST) "$(PARITY_$(if $(FAMILY),$(if $(filter cel,$(FAMILY)),cel,one),all))" -m "not verify" -q -s --no-header --junitxml $(REPORTS)/$@.xml

.PHONY: programs
programs: $(READY) ## Tests that need single programs of others: actionlint, Helm, Krew, upstream's own allocator and CEL
	$(call build,actionlint helm krew oracle)
	$(PYTEST) $(call marked,mark\.verify) --ignore tests/cli/test_completion.py -m verify -n $(WORKERS) --dist worksteal --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")

.PHONY: chart
chart: $(READY) ## Helm chart and plain manifests: lint, render, compare, validate
	$(call build,helm helm3 kubeconform promtool controlplane)
	$(PYTEST) tests/chart -m chart --junitxml $(REPORTS)/$@.xml

.PHONY: contract
contract: $(READY) ## What the simulated API server promises, asked of the real one (K=expression selects, RELEASES=all builds the releases between)
	$(call build,controlplane release-1.34)
	$(BETWEEN)
	$(PYTEST) tests/contract -m e2e -n 1 --most-planes 3 --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")

.PHONY: e2e
e2e: $(READY) ## End to end on a real etcd, API server, controller manager and scheduler (K=expression selects, RELEASES=all builds the releases between the oldest and the newest)
	$(call build,controlplane release-1.34 helm)
	$(BETWEEN)
	$(BIN)/python -m tests.support.granted_rights --forget
	$(PYTEST) $(call marked,mark\.e2e) -m e2e --most-planes $(PLANES) \
	  -n $(E2E_WORKERS) --dist loadgroup --no-loadscope-reorder --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")
	$(if $(K),,$(BIN)/python -m tests.support.granted_rights)
	$(if $(K),,$(BIN)/python -m tests.support.versions_table $(REPORTS)/$@.xml)

.PHONY: observe
observe: $(READY) ## A real Prometheus scrapes a real run: every alert and every query of the dashboard is evaluated
	$(call build,controlplane helm prometheus)
	$(PYTEST) tests/observe -m e2e -n 1 --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")

.PHONY: node
node: node-needs $(READY) ## As root: pods that the extender places really run, on kubelets with containerd and a DRA driver (K=expression selects, QUICK=1 the quickest)
	$(call build,controlplane nodes)
	$(PYTEST) $(if $(QUICK),$(NODE_QUICK),tests/node) -n $(NODE_WORKERS) --dist loadfile --timeout 600 --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")
	$(if $(K)$(QUICK),,$(BIN)/python -m tests.support.node.comparison $(REPORTS)/$@.xml)

.PHONY: node-needs
node-needs:
	@$(PYTHON) tests/node/needs.py

.PHONY: ui-test
ui-test: ui-needs $(READY) $(UI_READY) ## The page in a real Chromium, with axe-core and a real control plane (SCREENSHOTS=1 renews docs/images)
	$(call build,controlplane)
	PYTHONPATH=$(UI)/python $(PYTEST) tests/ui -n 1 --junitxml $(REPORTS)/$@.xml $(if $(SCREENSHOTS),--screenshots docs/images) $(if $(K),-k "$(K)")

.PHONY: ui-needs
ui-needs:
	@$(PYTHON) tests/ui/needs.py

.PHONY: ui-test-setup
ui-test-setup: ## Install the browser for ui-test on Debian, as root
	apt-get install --yes --no-install-recommends chromium chromium-driver

.PHONY: shell-test
shell-test: $(READY) ## Completion in bash, zsh and fish; a shell that is missing is a failure
	$(PYTEST) tests/cli/test_completion.py -m verify -n 0 --junitxml $(REPORTS)/$@.xml

.PHONY: shell-test-setup
shell-test-setup: ## Install the shells for shell-test on Debian, as root
	apt-get install --yes --no-install-recommends zsh fish

.PHONY: archive
archive: $(READY) ## The plugin as an archive that needs no Python, for this machine (in dist); Krew and uvx try it; no part of `verify`
	$(call build,krew controlplane)
	$(PYTEST) tests/archive -n 0 --junitxml $(REPORTS)/$@.xml $(if $(K),-k "$(K)")

.PHONY: image
image: image-needs $(READY) ## As root: build the image twice, compare, run it for any user on a read-only root (PYTHON_IMAGE=base; QUICK=1 builds once; result: dist/dra-extender-image.tar)
	$(call build,controlplane)
	$(PYTEST) tests/image -n 0 --junitxml $(REPORTS)/$@.xml $(if $(or $(K),$(QUICK)),-k "$(or $(K),not two_builds and not traces)")

.PHONY: image-needs
image-needs:
	@$(PYTHON) tests/image/needs.py

.PHONY: image-setup
image-setup: ## Install what builds the image on Debian, as root
	apt-get install --yes --no-install-recommends buildah debootstrap debian-archive-keyring

.PHONY: bench
bench: $(READY) ## Measure; prints a table and writes bench/latest.json (ONLY=area selects, ROUNDS=n; QUICK=1 only tries every area, in small)
	$(call build,controlplane oracle)
	$(if $(QUICK),$(PYTEST) tests/bench -m e2e -n 2 --dist worksteal --timeout 600 --junitxml $(REPORTS)/$@.xml $(if $(ONLY),-k "$(ONLY)"),$(BIN)/python -m tests.bench $(if $(ONLY),--only "$(ONLY)") $(if $(ROUNDS),--rounds $(ROUNDS)))

.PHONY: simulation
simulation: $(READY) ## Service, cluster and network in one process on virtual time (SEEDS=n, or SEED=n replays one, STEPS=1 prints its log)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --replay $(if $(STEPS),--steps),--seeds $(or $(SEEDS),200))

.PHONY: soak
soak: $(READY) ## A simulated cluster that lives for a day: nothing may go wrong, and memory may not grow (HOURS=n NODES=n)
	$(BIN)/python -m tests.simulation --soak --hours $(or $(HOURS),24) --nodes $(or $(NODES),500)

.PHONY: fuzz
fuzz: $(READY) ## Random expressions and scenarios compared with upstream's own code (SECONDS=n in all, SEED=n, ONLY=cel|allocator)
	$(BIN)/python -m tests.parity.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

.PHONY: hostile
hostile: $(READY) ## Search for what a tenant could write to stall, crash or fill the service (SECONDS=n in all, SEED=n, ONLY=part, ABOUT=text, TARGET=checkout)
	$(BIN)/python -m tests.hostile $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(ABOUT),--about "$(ABOUT)") $(if $(TARGET),--target "$(TARGET)")

.PHONY: chaos
chaos: $(READY) ## Let everything fail at random and check that nothing is lost or leaked (SECONDS=n PODS=n SEED=n)
	$(call build,controlplane)
	$(BIN)/python -m tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(PODS),--pods $(PODS)) $(if $(SEED),--seed $(SEED))

##@ Keep

.PHONY: fmt
fmt: $(READY) ## Format and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: generate
generate: $(READY) ## Write every document, table and schema that is made from the program
	$(BIN)/python -m tests.support.generate

.PHONY: lock
lock: $(READY) ## Resolve the lock files anew from pyproject.toml
	$(BIN)/uv pip compile $(COMPILE) pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile $(COMPILE) pyproject.toml --extra tracing -o requirements-tracing.lock
	$(BIN)/uv pip compile $(COMPILE) pyproject.toml --extra tracing --group dev -o requirements-dev.lock
	$(BIN)/uv pip compile $(COMPILE) --group go -o requirements-go.lock
	$(BIN)/uv pip compile $(COMPILE) --group bench -o requirements-bench.lock
	$(BIN)/uv pip compile $(COMPILE) --group build -o requirements-build.lock
	$(BIN)/uv pip compile $(COMPILE) --group archive -o requirements-archive.lock
	$(BIN)/uv pip compile $(COMPILE) --group ui -o requirements-ui.lock

.PHONY: clean
clean: ## Remove the environment and everything generated
	rm -rf $(VENV) $(REPORTS) $(UI) .site tests/ui/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage bench/latest.json

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9_-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Test processes at a time on two cores; tests on a control plane wait for its programs.
WORKERS ?= 2
E2E_WORKERS ?= 4
NODE_WORKERS ?= 1
NODE_QUICK := $(addprefix tests/node/test_node_environment.py::, \
  test_the_environment_of_a_container_equals_the_allocation \
  test_containers_of_a_pod_share_its_claim_and_one_without_reference_has_nothing \
  test_the_first_alternative_that_is_free_is_in_the_container)
# Folders with programs, fixtures and a target of their own.
APART := bench observe ui image archive node
# Releases between the oldest and the newest, which otherwise are emulated.
BETWEEN = $(if $(RELEASES),$(call build,release-1.35 release-1.36))
export ALL_RELEASES := $(RELEASES)
# Control planes that `make e2e` may start: those of tests/controlplane/planes.py.
PLANES := 8
# With these, nothing that a test of make test starts builds or downloads a program.
NO_PROGRAMS := TESTS_REFUSE_BUILDS=1 GOPROXY=off PIP_NO_INDEX=1 UV_OFFLINE=1 npm_config_offline=true
UNIT := tests -m "not e2e and not chart and not verify and not nightly" $(addprefix --ignore tests/,$(APART) e2e) \
  -n $(WORKERS) --dist worksteal
# The files of tests that contain a pattern: collecting all tests takes longer than some targets.
marked = $$(grep --recursive --files-with-matches --include 'test_*.py' $(foreach folder,$(APART),--exclude-dir $(folder)) '$(1)' tests)
build = $(BIN)/python tests/controlplane/build.py $(foreach target,$(1),--only $(target))
# The floor only rises, the ceiling only falls.
COVERAGE_FLOOR := 95
COGNITIVE_CEILING := 35
PARITY_all = tests/parity
PARITY_cel = tests/parity/test_parity_cel.py
PARITY_one = tests/parity/test_parity_allocator.py::test_family_agrees_with_upstream[$(FAMILY)]
COMPILE := -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

export PYTHON_IMAGE

# What drives the browser is installed into a folder here; the browser itself is not.
$(UI_READY): requirements-ui.lock tests/ui/package-lock.json
	rm -rf $(UI)
	$(BIN)/uv pip install -q --require-hashes --target $(UI)/python -r requirements-ui.lock
	npm ci --prefix tests/ui --ignore-scripts --no-audit --no-fund --loglevel error
	touch $@

define environment
@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dra-extender needs Python 3.11 or newer, found " + sys.version.split()[0])'
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
test -x $(BIN)/uv || $(BIN)/python -m pip install -q --disable-pip-version-check "$$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' requirements-dev.lock)"
endef

# What the program needs, and no tools of developers.
$(USABLE): requirements.lock requirements-build.lock pyproject.toml
	$(environment)
	$(BIN)/uv pip install -q --require-hashes -r requirements.lock -r requirements-build.lock
	$(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	touch $@

$(READY): requirements-dev.lock pyproject.toml
	$(environment)
	$(BIN)/uv pip sync -q --require-hashes requirements-dev.lock
	$(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	touch $@
