# make demo   all lenses on a few photographs, and a report                make test      the fast tests
# make check  format, lint, types, layers                                  make test-all  all tests
# make bench  docs/performance.md                                          make test-zoo  timm, torchvision, Hugging Face, MAITE …
# make chaos  docs/reliability.md: faults on purpose                       make fidelity  docs/fidelity.md
# make test-browser  the viewer and the report in Chromium                 make docs      the documentation site, in site/html
# make hashed  install for CI, by hashes                                  make audit     compare the pinned versions with known vulnerabilities
# make release  the wheel, tried in a clean environment (PYTHON=…)        make lowest    the oldest versions that pyproject.toml accepts

PYTHON ?= python3
VENV := .venv
ZOO := .venv-zoo
# Each worker is a process that computes in one thread.
PARALLEL := --numprocesses 2 --dist loadscope
# runs, queries, figures, pages and rules: what uses the core's dependencies
LOWEST := tests/test_api.py tests/test_gate.py
PIP := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-all test-browser check format test-zoo bench fidelity chaos docs hashed audit release lowest clean

demo: $(VENV)/demo
	$(VENV)/bin/brinell demo

test: $(VENV)/dev
	$(VENV)/bin/python -m pytest $(PARALLEL) -m 'not slow'

test-all: $(VENV)/dev
	$(VENV)/bin/python -m pytest $(PARALLEL)

test-browser: $(VENV)/dev
	$(VENV)/bin/python -m pytest tests/test_view_*.py tests/test_report.py

check: $(VENV)/dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

# torchvision and what builds on it need another torch
test-zoo: $(ZOO)/zoo
	$(ZOO)/bin/python -m pytest tests/zoo tests/stories/test_fine_tuned.py

bench: $(VENV)/bench
	$(VENV)/bin/python -m benchmarks

fidelity: $(VENV)/dev
	$(VENV)/bin/python -m fidelity.profiles
	$(VENV)/bin/python -m fidelity.knobs
	$(VENV)/bin/python -m fidelity.geometry
	$(VENV)/bin/python -m fidelity.fragility page
	$(VENV)/bin/python -m fidelity.highlights page
	$(VENV)/bin/python -m fidelity.hardening page
	$(VENV)/bin/python -m fidelity.coverage
	$(VENV)/bin/python -m fidelity.sequential
	$(VENV)/bin/python -m fidelity.corruptions --page

# the long version; tests/test_chaos.py is the short one
chaos: $(VENV)/chaos
	$(VENV)/bin/python -m chaos

docs: $(VENV)/docs
	$(VENV)/bin/python -m website

# Only files whose hashes are listed, for Python 3.11 on Linux x86-64. It needs PyTorch's build for the CPU, which is not on
# PyPI: from a folder (PIP_FIND_LINKS) or from PyTorch's own index (PIP_EXTRA_INDEX_URL).
hashed: | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) --require-hashes --no-deps --requirement constraints-hashed.txt
	$(VENV)/bin/python $(PIP) --no-deps --no-build-isolation --editable . --editable tests/plugin
	$(VENV)/bin/python -m pip check
	touch $(VENV)/dev $(VENV)/demo

# strict: a version that the service doesn't know is no version without vulnerabilities
audit:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python $(PIP) pip-audit
	$(VENV)-audit/bin/pip-audit --strict --requirement constraints-hashed.txt --require-hashes --disable-pip
	$(VENV)-audit/bin/pip-audit --strict --requirement constraints-zoo.txt --no-deps --disable-pip

# A wheel from the source archive, and everything that a new user does first, outside of the clone. `make release DEMO=1` runs
# the demo, too; sbom.json lists what was installed.
release:
	$(PYTHON) .ci/release.py --sbom $(if $(DEMO),--demo)

# Python 3.11. PyPI's build of the oldest torch brings CUDA; PIP_EXTRA_INDEX_URL can point to PyTorch's index for the CPU.
lowest:
	$(PYTHON) -m venv --clear $(VENV)-lowest
	$(VENV)-lowest/bin/python $(PIP) --constraint constraints-lowest.txt '.[numba,onnx]' hypothesis 'pytest>=8.2' 'scipy<1.14' jsonschema
	$(VENV)-lowest/bin/python -m pytest -W default -m 'not slow' $(LOWEST)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "brinell needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt tests/plugin/pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP) --constraint constraints.txt --editable '.[demo,dev]' --editable tests/plugin
	touch $@ $(VENV)/demo

$(VENV)/bench: $(VENV)/dev benchmarks/requirements.txt
	$(VENV)/bin/python $(PIP) --constraint constraints.txt --requirement benchmarks/requirements.txt
	touch $@

$(VENV)/docs: $(VENV)/dev website/requirements.txt
	$(VENV)/bin/python $(PIP) --constraint constraints.txt --requirement website/requirements.txt
	touch $@

$(VENV)/chaos: $(VENV)/dev chaos/requirements.txt
	$(VENV)/bin/python $(PIP) --constraint constraints.txt --requirement chaos/requirements.txt
	touch $@

$(ZOO)/zoo: pyproject.toml constraints-zoo.txt
	$(PYTHON) -m venv $(ZOO)
	$(ZOO)/bin/python $(PIP) --constraint constraints-zoo.txt --editable '.[zoo]'
	$(ZOO)/bin/python $(PIP) --constraint constraints-zoo.txt --no-deps grad-cam imagecorruptions  # which ask for an OpenCV with windows
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-build $(VENV)-lowest $(VENV)-release $(ZOO) dist runs site
