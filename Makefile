# Sluice. `make` alone tells what there is.

SHELL := /bin/bash
export HOME ?= /root
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH):/usr/local/sbin:/usr/sbin:/sbin

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CARGO ?= cargo
PROFILE ?= quick
SOAK ?= 20
# in the order of scripts/setup.sh
CLANG_FORMAT ?= $(shell for name in clang-format{-19,-22,-21,-20,-18,}; do command -v $$name && break; done)
# without one, make would take `--dry-run` for the command, and its dash for leave to fail
FORMAT = $(or $(CLANG_FORMAT),$(error no clang-format in PATH: `make setup` installs one, CLANG_FORMAT=PROGRAM names another))

BPF_SOURCES = $(shell find bpf -name '*.[ch]')

.PHONY: help setup build gateway demo test soak upgrades kernels chroots mutants bench budgets check layout fmt lint clean install deb debtest

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing on Debian or Ubuntu (says what and why; needs root)
	@SLUICE_TARGET=$(or $(firstword $(MAKECMDGOALS)),setup) scripts/setup.sh

build: ## build target/release/sluice
	$(CARGO) build --release -p sluice -j$(JOBS)

demo: setup build ## real traffic through the branch gateway on both hooks, then a capture analysed and a day of operations; JSON=file: results as data
	target/release/sluice lab run branch --hook both $(if $(JSON),--json $(JSON))
	target/release/sluice lab run nat --hook both
	target/release/sluice lab run nat64 --hook both
	target/release/sluice lab run gate --hook both
	target/release/sluice lab run fanout --hook both
	target/release/sluice lab run gtpu --hook both
	target/release/sluice lab run edges --hook both
	@mkdir -p target/demo
	target/release/sluice pcap generate --packets 1000000 --flows 1000 --protocol mixed --loss 0.001 --reorder 0.001 \
		--duplicate 0.0002 --rekey 500 --output target/demo/mixed.pcap
	target/release/sluice monitor target/demo/mixed.pcap --quiet
	target/release/sluice lab run operate --hook both

# what is tested is linted as it is built (tests/lint), and nothing is built a second time for that; documentation has no examples
# to be run, and looking for them takes a minute
test: setup layout ## layout, lints and every test
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/lint CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ \
		$(CARGO) test --workspace --lib --bins --tests --no-fail-fast -j$(JOBS)

# only what SLUICE_SOAK makes longer; each says how many steps a hook it did
soak: setup ## random traces SOAK=20 times as long as in make test, from SEED=1 on (half an hour)
	SLUICE_SOAK=$(SOAK) SLUICE_SEED=$(or $(SEED),1) $(CARGO) test -p sluice-packet-tests --test all -j$(JOBS) -- \
		--test-threads 2 --nocapture differential:: gtpu:: nat:: nat64:: nat64_sessions:: nftables:: onwire:: persistent:: policies::
	SLUICE_SOAK=$(SOAK) $(CARGO) test -p sluice --test all -j$(JOBS) -- \
		--nocapture fanout::pairs gate::nothing_leaks gtpu_many:: memory:: schemathesis:: store::a_commit_that_is_cut_short
	SLUICE_SOAK=$(SOAK) $(CARGO) test -p sluice --test all -j$(JOBS) -- --test-threads 1 --nocapture gtpu_count::
	SLUICE_SOAK=$(SOAK) $(CARGO) test -p sluice-dataplane --test all -j$(JOBS) -- --nocapture state::every_variant
	$(CARGO) test -p sluice --test all -j$(JOBS) -- --ignored frr:: dhcp:: dhcp_provider::
	$(CARGO) test -p sluice --test all -j$(JOBS) -- --include-ignored --test-threads 1 dhcp_server:: router_advertisement::

upgrades: setup ## from the version before and to a twin and back under load; builds both (half an hour)
	$(CARGO) test -p sluice --test upgrade --test hitless -j$(JOBS) -- --ignored --test-threads 1

kernels: setup ## load and use everything on other kernels, in guests (an hour); KERNEL=6.12: that one only
	tests/vm/kernels $(if $(KERNEL),-k $(KERNEL))
	$(CARGO) test -p sluice --test all -j$(JOBS) -- --ignored drivers::restarts_reset_nothing

chroots: setup ## try setup in clean Debian and Ubuntu systems (half an hour); RELEASE=trixie: that one only; BUILD=1: build there, too
	tests/chroot/run $(if $(BUILD),--build) $(RELEASE)

mutants: setup ## break the programs in every way of tests/mutants and see each refused (an hour); SOUND=20: unbroken ones pass 20 times; FIXES=1: take back what closed holes
	tests/mutants/run $(if $(FIXES),--fixes) --sound $(or $(SOUND),1)

bench: setup build ## measure everything and write the report; PROFILE=full for figures to quote
	scripts/setup-bench.sh
	@mkdir -p target/bench
	target/release/sluice bench all --profile $(PROFILE) --json target/bench/results.json --html target/bench/report.html

budgets: setup build ## measure and judge the promised speeds
	target/release/sluice bench budgets

check: lint layout

layout:
	$(CARGO) fmt --all --check
	$(FORMAT) --dry-run -Werror $(BPF_SOURCES)

lint: ## clippy, warnings are errors
	$(CARGO) clippy --workspace --all-targets -j$(JOBS) -- -D warnings

fmt: ## lay out all sources
	$(CARGO) fmt --all
	$(FORMAT) -i $(BPF_SOURCES)

clean: ## remove what was built
	$(CARGO) clean

# A gateway needs neither lab nor bench, and its debug data only when something is looked into.
gateway: ## build what a gateway runs, target/gateway/sluice, without lab and bench; debug data in sluice.debug beside it
	SLUICE_SLIM=1 $(CARGO) build --profile gateway -p sluice -j$(JOBS) --no-default-features --target-dir target/gateway
	objcopy --only-keep-debug target/gateway/gateway/sluice target/gateway/sluice.debug
	cd target/gateway && objcopy --strip-all --add-gnu-debuglink=sluice.debug gateway/sluice sluice
	@test "$$(stat -c %s target/gateway/sluice)" -lt 25000000 || { echo "make: target/gateway/sluice is above 25 MB" >&2; exit 1; }

install: gateway ## install the gateway, its debug data, manual pages, completions and examples under PREFIX (/usr/local)
	install -D -m 755 target/gateway/sluice $(DESTDIR)$(PREFIX)/bin/sluice
	install -D -m 644 target/gateway/sluice.debug $(DESTDIR)/usr/lib/debug$(PREFIX)/bin/sluice.debug
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/sluice/examples examples/*.conf
	@mkdir -p $(DESTDIR)$(PREFIX)/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
	target/gateway/sluice man $(DESTDIR)$(PREFIX)/share/man/man1
	target/gateway/sluice completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/sluice
	target/gateway/sluice completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sluice
	target/gateway/sluice completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sluice.fish

deb: gateway ## make the Debian package of the gateway, target/deb/sluice_VERSION_ARCHITECTURE.deb
	scripts/deb

debtest: setup gateway ## install, upgrade under traffic, remove and purge the package in a clean Debian (ten minutes)
	tests/chroot/deb

# setup comes before build
.NOTPARALLEL:
