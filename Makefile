# A thin front for Meson. `make help` says what there is.

BUILD  ?= build
PREFIX ?= /usr/local
NEED   := scripts/need
MESON  := $(if $(wildcard /usr/bin/meson),/usr/bin/meson,meson)

.PHONY: all build demo test lint bench install clean help

all: build

help:
	@echo 'make           build the library, the nginx module and the demo in $(BUILD)/'
	@echo 'make demo      tell the story of a double charge, and of how it is prevented'
	@echo 'make test      run all tests'
	@echo 'make lint      check layout, warnings and static analysis'
	@echo 'make bench     measure requests per second, and memory'
	@echo 'make install   install below PREFIX ($(PREFIX)); DESTDIR is respected'
	@echo 'make clean     remove what was built'

$(BUILD)/build.ninja:
	@$(NEED) build
	$(or $(wildcard /usr/bin/meson),meson) setup --prefix=$(PREFIX) $(BUILD)

build: $(BUILD)/build.ninja
	@$(NEED) build
	ninja -C $(BUILD)

demo:
	@$(NEED) build demo
	@$(MAKE) --no-print-directory build
	@demo/story $(BUILD)

test:
	@$(NEED) build test
	@$(MAKE) --no-print-directory build
	@/usr/bin/python3 scripts/test.py $(BUILD)

lint:
	@$(NEED) build test lint
	@scripts/lint

bench:
	@$(NEED) build bench
	@$(MAKE) --no-print-directory build
	@bench/run $(BUILD)

install: build
	DESTDIR=$(DESTDIR) $(MESON) install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan build-clang build-gcc-lint
