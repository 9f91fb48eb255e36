# `make run` and `make test` do everything; the other targets are their parts.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .make
EXAMPLE := examples/research_crew
PROJECT ?= $(EXAMPLE)
ifeq ($(PROJECT),$(EXAMPLE))
unexport VIRTUAL_ENV  # the example runs on Windlass's own interpreter, also where another environment is active
endif
export UV_LINK_MODE ?= copy
# As pip does: behind a company's proxy the certificates of the machine count.
export UV_SYSTEM_CERTS ?= true

.PHONY: run serve test test-unit browser servers test-versions rotation-example check lint types imports assets dist image-base image compose test-image lock lock-versions audit bench soak docs clean help

run: $(STAMPS)/run $(STAMPS)/assets  ## install, then serve the example crew (PROJECT=path serves yours)
	@echo "==> starting Windlass with $(PROJECT)"
	@exec $(BIN)/windlass dev $(PROJECT)

serve: $(STAMPS)/run $(STAMPS)/assets  ## install, then start a server for deployed crews (ARGS=--offline-model answers without an API key)
	@echo "==> starting Windlass"
	@exec $(BIN)/windlass serve $(ARGS)

# The older releases of crewai that `make test` runs too: one before 1.0, and one before crewai had its hooks.
OLDER := 0.186.1 1.9.3

test: $(STAMPS)/dev $(STAMPS)/assets $(STAMPS)/semantic-kernel $(OLDER:%=$(STAMPS)/crewai/%/built) $(STAMPS)/crewai/instrumented/built browser servers  ## install what the tests need, then run them all
	@echo "==> running the tests"
	CREWAI_ENVIRONMENTS="$(OLDER)" $(BIN)/python -m pytest $(ARGS)

test-unit: $(STAMPS)/dev  ## run the tests that need no server, no database and no process: within a minute
	$(BIN)/python -m pytest -m unit $$(grep -rl --include="test_*.py" "mark.unit" tests) $(ARGS)

# Without a browser its tests are skipped, so a failure here is only a message. Set WINDLASS_TESTS_BROWSER to name another one, or to
# "none" to install and use none.
browser:
	@test "$${WINDLASS_TESTS_BROWSER:-}" = none || command -v chromium chromium-browser google-chrome google-chrome-stable $${WINDLASS_TESTS_BROWSER:-} >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		echo "==> installing Chromium, for the tests of pages (once)" && \
		(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1; \
	} || echo "==> no browser is installed, and it can't be installed here: its tests are skipped. Install the package \`chromium\` to run them."

# Without them, the store is tested only on the embedded PostgreSQL.
servers:
	@test -n "$$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" -a -x /usr/sbin/pgbouncer || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		echo "==> installing Debian's PostgreSQL and PgBouncer, for the tests of the store (once; no server is started)" && \
		tests/store/install_servers.sh >/dev/null 2>&1; \
	} || echo "==> PostgreSQL or PgBouncer is not installed, and can't be installed here: their tests are skipped. Install \`postgresql\` and \`pgbouncer\` to run them."

	@tests/store/install_postgres.sh $(STAMPS)/postgres >/dev/null 2>&1 || echo "==> PostgreSQL 14 and 17 can't be fetched here: their tests are skipped."

test-versions: $(STAMPS)/dev  ## run small crews and flows on a dozen releases of crewai, and write their table (ARGS="0.80.0-3.10 newest-3.13" for some)
	$(BIN)/python tests/versions/every_version.py $(ARGS)

rotation-example: $(STAMPS)/dev $(STAMPS)/assets  ## rotate a secret in OpenBao, and see that the next kickoff has it
	$(BIN)/python examples/rotation_verifier/verify.py

check: lint types imports  ## what a machine can check without running the product

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMPS)/dev
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 src/windlass_child

imports: $(STAMPS)/dev
	$(BIN)/lint-imports

assets: $(STAMPS)/assets

dist: $(STAMPS)/dev $(STAMPS)/assets  ## build the wheel and the source distribution in dist/: the same sources give the same bytes
	@rm -rf dist
	@$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	@rm -f dist/.gitignore && cd dist && sha256sum * | tee SHA256SUMS

# On machines with cgroups of both versions crun starts no container, and runc does.
PODMAN ?= podman $(if $(wildcard /sys/fs/cgroup/unified),--runtime runc)
BASE ?= localhost/windlass-base:bookworm
IMAGE ?= localhost/windlass
# The certificates and the configuration of pip that count on this machine, as secrets of the build: they are in no layer.
BUILD_SECRETS = $(if $(SSL_CERT_FILE),--secret id=ca.pem$(,)src=$(SSL_CERT_FILE)) $(if $(PIP_CONFIG_FILE),--secret id=pip.conf$(,)src=$(PIP_CONFIG_FILE))
, := ,

image-base:  ## make a base for images with debootstrap, where no registry of images can be reached (needs root)
	@deploy/image/base.sh $(BASE)

image: dist  ## build the images IMAGE:server and IMAGE:full with podman (BASE=python:3.11-slim-bookworm for a base from a registry)
	@$(PODMAN) image exists $(BASE) || test "$(BASE)" != localhost/windlass-base:bookworm || deploy/image/base.sh $(BASE)
	@for target in server full; do \
		echo "==> building $(IMAGE):$$target" && \
		$(PODMAN) build --quiet --format docker --network host --target $$target $(BUILD_SECRETS) --build-arg BASE=$(BASE) \
			--build-arg VERSION=$$($(BIN)/windlass --version | grep -o '[^ ]*$$') --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) \
			--tag $(IMAGE):$$target . >/dev/null || exit 1; \
	done
	@$(PODMAN) images --filter reference=$(IMAGE)

COMPOSE ?= podman-compose
compose:  ## start compose.yaml: PostgreSQL, two API servers, two workers, a proxy with TLS (COMPOSE="docker compose")
	@deploy/compose/secrets.sh
	@$(COMPOSE) up -d

test-image: $(STAMPS)/dev  ## build the images and run containers of them: several minutes
	@if ! command -v podman >/dev/null; then echo "==> podman is not installed: the images are not tested"; \
	elif ! $(PODMAN) info >/dev/null; then echo "==> podman does not work here: the images are not tested"; \
	else $(MAKE) image && WINDLASS_TESTS_IMAGE=$(IMAGE) WINDLASS_TESTS_BASE=$(BASE) WINDLASS_TESTS_PODMAN="$(PODMAN)" $(BIN)/python -m pytest -n 0 -p no:cacheprovider tests/image $(ARGS); fi

docs: $(STAMPS)/dev  ## write the tables of the documentation that follow from the code
	PYTHONPATH=tests $(BIN)/python -m repo.generated_docs

bench: $(STAMPS)/bench $(STAMPS)/assets  ## measure: a table of medians and ratios (ARGS=--quick for a short one, ARGS="--only runs" for a part)
	$(BIN)/python -m bench $(ARGS)

soak: $(STAMPS)/dev $(STAMPS)/assets  ## many kickoffs through one server, and what is left of them (ARGS="--kickoffs 5000 --crews 300")
	$(BIN)/python -m bench.soak $(ARGS)

$(STAMPS)/venv: requirements/uv.txt
	@echo "==> making the environment in $(VENV) (once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Windlass needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@mkdir -p $(STAMPS) && touch $@

define install
	@echo "==> installing $(1) (once; a minute or two on a fresh machine)"
	@# with byte code, which crews that run as another user can't write
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/build.txt -r requirements/$(1).txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-build-isolation --no-deps -e .
	@mkdir -p $(STAMPS) && touch $@
endef

$(STAMPS)/run: $(STAMPS)/venv requirements/build.txt requirements/run.txt pyproject.toml
	$(call install,run)

$(STAMPS)/dev: $(STAMPS)/venv requirements/build.txt requirements/dev.txt pyproject.toml
	$(call install,dev)

# A client that the tests run unmodified. It is not installed beside the tests, because it needs other versions of their libraries.
$(STAMPS)/semantic-kernel: $(STAMPS)/venv requirements/semantic-kernel.txt
	@echo "==> installing Semantic Kernel, a client, for its test (once)"
	@rm -rf $@ && $(BIN)/uv venv --quiet --python $(BIN)/python $@
	@$(BIN)/uv pip install --quiet --no-deps --python $@/bin/python --require-hashes -r requirements/semantic-kernel.txt || { rm -rf $@; exit 1; }

$(STAMPS)/bench: $(STAMPS)/dev requirements/bench.txt
	$(call install,bench)

# An environment NAME or NAME-PYTHON with the packages of requirements/crewai/NAME.txt. Files are hard links to uv's cache.
.SECONDEXPANSION:
INTERPRETER ?= $(BIN)/python
$(STAMPS)/crewai/%/built: requirements/crewai/$$(firstword $$(subst -, ,$$*)).txt | $(STAMPS)/venv
	@echo "==> making an environment with crewai $* (once; a minute on a fresh machine)"
	@rm -rf $(@D)
	@$(BIN)/uv venv --quiet --no-python-downloads --python $(INTERPRETER) $(@D)
	@UV_LINK_MODE=hardlink $(BIN)/uv pip install --quiet --python $(@D)/bin/python --require-hashes -r $<
	@touch $@

$(STAMPS)/npm: package-lock.json
	@echo "==> fetching what the pages load in the browser (once)"
	@npm ci --silent --no-audit --no-fund --ignore-scripts
	@mkdir -p $(STAMPS) && touch $@

# The stylesheet and the icons have only what the templates use.
PAGES := $(shell find src/windlass/dashboard -name '*.html' -o -name '*.py' -o -path '*/static/*.js' -not -path '*/build/*')
$(STAMPS)/assets: $(STAMPS)/npm assets/build.mjs $(PAGES)
	@node assets/build.mjs
	@touch $@

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
# Extras of crewai.
VENDORS = anthropic,azure-ai-inference,google-genai
MANAGERS = --extra aws --extra google --extra azure
EXTRAS = --extra crewai $(MANAGERS)
lock: $(STAMPS)/venv  ## pin the dependencies again (ARGS=--upgrade for newer ones)
	echo 'uv>=0.9,<1' | $(COMPILE) $(ARGS) - -o requirements/uv.txt
	@# The clients of secret managers need older releases of some packages, so their file comes first.
	$(COMPILE) $(ARGS) pyproject.toml $(EXTRAS) --group dev -o requirements/dev.txt
	$(COMPILE) $(ARGS) pyproject.toml --extra crewai -c requirements/dev.txt -o requirements/run.txt
	@# Those of the images, `server` and `full`.
	$(COMPILE) $(ARGS) pyproject.toml $(MANAGERS) -c requirements/dev.txt -o requirements/server.txt
	$(COMPILE) $(ARGS) pyproject.toml $(EXTRAS) -c requirements/dev.txt -o requirements/full.txt
	$(COMPILE) $(ARGS) pyproject.toml $(EXTRAS) --group dev --group bench -c requirements/dev.txt -o requirements/bench.txt
	$(COMPILE) $(ARGS) --group build -c requirements/dev.txt -o requirements/build.txt
	@# The packages that are left out are large, and its client of crews imports none of them.
	echo 'semantic-kernel>=1.45,<2' | $(COMPILE) $(ARGS) $(addprefix --no-emit-package ,scipy av aiortc aioice pylibsrtp google-crc32c) - -o requirements/semantic-kernel.txt
	echo 'pip-audit>=2.9,<3' | $(COMPILE) $(ARGS) - -o requirements/audit.txt
	grep -o '^crewai==[^ ]*' requirements/run.txt | $(COMPILE:3.11=3.10) $(ARGS) - -o requirements/crewai/newest.txt
	@# Libraries that trace crewai by wrappers of their own, and clients of vendors of models, with that crewai.
	{ sed -n 's/^crewai\(==[^ ]*\).*/crewai[$(VENDORS)]\1/p' requirements/run.txt; printf '%s\n' openinference-instrumentation-crewai opentelemetry-instrumentation-crewai openlit; } | $(COMPILE) $(ARGS) - -o requirements/crewai/instrumented.txt
	npm install --package-lock-only --ignore-scripts --silent

# Releases of crewai, each with the day whose packages it is installed with: newer ones of its dependencies break many.
RELEASES := 0.80.0@2024-11-30 0.100.1@2025-02-01 0.120.1@2025-05-17 0.150.0@2025-07-25 0.186.1@2025-09-12 \
	0.203.2@2025-11-29 1.0.0@2025-10-22 1.4.1@2025-11-09 1.6.1@2025-12-01 1.9.3@2026-02-02 1.10.1@2026-03-05 \
	1.12.2@2026-03-26 1.14.4@2026-05-07 1.14.7@2026-06-15 1.15.0@2026-06-30

lock-versions: $(STAMPS)/venv  ## pin the environments with older releases of crewai again
	set -e; for one in $(RELEASES); do \
		echo "crewai==$${one%@*}" | $(COMPILE:3.11=3.10) --exclude-newer $${one#*@} - -o requirements/crewai/$${one%@*}.txt; \
	done

audit: $(STAMPS)/audit  ## look for known vulnerabilities in the locked dependencies (needs a network)
	@for name in uv build run dev bench audit; do \
		echo "==> auditing requirements/$$name.txt"; \
		$(STAMPS)/audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/$$name.txt || { \
			echo "make audit failed: either the lines above list vulnerabilities, or the advisory service can't be reached from here."; exit 1; }; \
	done
	@echo "==> auditing package-lock.json"
	@npm audit --package-lock-only

$(STAMPS)/audit: $(STAMPS)/venv requirements/audit.txt
	@rm -rf $@ && $(BIN)/uv venv --quiet $@
	@$(BIN)/uv pip install --quiet --python $@/bin/python --require-hashes -r requirements/audit.txt

clean:  ## forget everything that was installed
	rm -rf $(VENV) $(STAMPS) node_modules src/windlass/api/static src/windlass/dashboard/static/build

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/'
