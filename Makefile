# `make` alone prints the targets. Tools are pinned here, built from source into
# ./bin and kept out of go.mod.

GOLANGCI_VERSION := v2.14.0
DEADCODE_VERSION := v0.52.0
VERSITY_VERSION  := v1.8.0
OPENCODE_VERSION := 1.18.33

SHELL   := /bin/sh
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The version is given explicitly; asking git for it again fails in a checkout
# that belongs to somebody else.
#
# Everything is compiled with the same flags, so that the build, vet, the linter and
# the end-to-end tests share one cache. The race detector alone needs cgo, and so
# compiles everything once more.
export GOFLAGS := $(GOFLAGS) -buildvcs=false -trimpath
export CGO_ENABLED := 0

GO_BUILD := $(GO) build -ldflags "-s -w -X main.version=$(VERSION)"
GO_RACE  := CGO_ENABLED=1 $(GO) test -race
EMBEDDED := cmd/dormouse/embedded/dormouse-runner
LINT     := bin/golangci-lint
DEADCODE := bin/deadcode
VERSITY  := bin/versitygw
OPENCODE := bin/opencode

# Everything that is tested inside one process.
UNIT = $(shell $(GO) list ./... | grep -vE '/(e2e|bench)(/|$$)')

# Settings, for example `make storm SEED=7 RUNS=50`.
SEED     ?= 1
RUNS     ?= 20
SESSIONS ?= 100
MINUTES  ?= 10
SAMPLE   ?=
STORE    ?=
SANDBOX  ?=
SERVERS  ?=
CASES    ?=
SECTION  ?=
FUZZTIME ?= 10s
BEFORE   ?=
ARGS     ?=

CRASH := $(GO) run ./e2e/cmd/crash

.NOTPARALLEL:
.DEFAULT_GOAL := help

.PHONY: help
help: ## print the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nsettings, with their defaults:\n'
	@printf '  SEED=%-8s of chaos, hibernation and soak tests: the same seed kills at the same instants\n' '$(SEED)'
	@printf '  RUNS=%-8s of a chaos test (storm): how many kills\n' '$(RUNS)'
	@printf '  SESSIONS=%-4s of a hibernation test (naps): how many sessions hibernate and wake; of a soak, 500 unless it is said\n' '$(SESSIONS)'
	@printf '  MINUTES=%-5s of a hibernation test: for how long; of a soak, 60 unless it is said\n' '$(MINUTES)'
	@printf '  SAMPLE=%-6s of the crash matrix: how many cases, spread evenly; all if empty\n' '$(SAMPLE)'
	@printf '  STORE=%-7s of crash, storm, soak and e2e: sqlite or postgres; sqlite if empty, of a soak both\n' '$(STORE)'
	@printf '  SANDBOX=%-5s of crash: local or gvisor, which needs root; local if empty\n' '$(SANDBOX)'
	@printf '  SERVERS=%-5s of a chaos test over a shared store: how many servers\n' '$(SERVERS)'
	@printf '  CASES=%-7s of the attacks: those whose name matches; all if empty\n' '$(CASES)'
	@printf '  SECTION=%-5s of the attacks: sandbox, archive or wall; all if empty\n' '$(SECTION)'
	@printf '  BEFORE=%-6s of the bench: another binary, beside which this one is measured; none if empty\n' '$(BEFORE)'
	@printf '  FUZZTIME=%-4s for each fuzz target\n' '$(FUZZTIME)'
	@printf '  ARGS=%-8s for the server that make run starts, and for what make v1 and make vm run\n' '$(ARGS)'

.PHONY: build
build: ## bin/dormouse, static, the runner inside
	$(GO_BUILD) -o $(EMBEDDED) ./cmd/dormouse-runner
	$(GO_BUILD) -o bin/dormouse ./cmd/dormouse

.PHONY: run
run: need-run build ## everything needed, then the server
	bin/dormouse serve $(ARGS)

# Much of what is tested from outside is waiting: meanwhile everything is compiled for
# the race detector, at the lowest priority.
.PHONY: test
test: need-test build ## everything needed, then the whole suite and a sample of the crash matrix
	$(GO) vet ./...
	CGO_ENABLED=1 nice -n 19 $(GO) build -race $(UNIT) & compiled=$$!; \
		$(MAKE) --no-print-directory test-outside; outside=$$?; \
		wait $$compiled && exit $$outside
	$(MAKE) --no-print-directory test-inside

.PHONY: test-inside
test-inside: ## what is tested inside one process, with the race detector
	$(GO_RACE) -timeout 40m $(UNIT)

.PHONY: test-outside
test-outside: ## the real binary from outside, and a sample of the crash matrix
	$(GO) test -p 1 -timeout 20m ./e2e/... # each starts servers and sandboxes of its own
	DORMOUSE_E2E_STORE=postgres $(GO) test -run Scenario ./e2e
	$(MAKE) --no-print-directory crash SAMPLE=120
	$(MAKE) --no-print-directory crash SAMPLE=80 STORE=postgres
	[ $$(id -u) -ne 0 ] || $(MAKE) --no-print-directory crash SAMPLE=30 SANDBOX=gvisor

# Type-checked and not linked. On Windows there is only the command line, whose tests
# start servers and are left out.
.PHONY: cross
cross: ## vet for the systems and processors that this machine is not
	for target in linux/arm64 darwin/amd64 darwin/arm64; do \
		GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0 $(GO) vet ./cmd/... $(if $(wildcard client),./client/...) ./runner/... ./sandbox/local || exit 1; \
	done
	for arch in amd64 arm64; do \
		files=$$(GOOS=windows $(GO) list -f '{{range .GoFiles}}{{$$.Dir}}/{{.}} {{end}}' ./cmd/dormouse) && \
			GOOS=windows GOARCH=$$arch CGO_ENABLED=0 $(GO) vet $$files || exit 1; \
	done

.PHONY: check
check: need-test lint ## format, lint, race tests of what needs no service: what you run all day
	$(GO_RACE) -timeout 20m $(UNIT)
	$(GO) test ./e2e/chaos/mutants # whose patches must still fit

.PHONY: e2e
e2e: need-test build ## the real binary, from outside
	DORMOUSE_E2E_STORE=$(STORE) $(GO) test -count=1 ./e2e/...

.PHONY: faults
faults: need-test ## disks, clocks, networks, models and databases that fail; see docs/faults.md
	$(GO) run ./e2e/cmd/faults

.PHONY: attacks
attacks: need-run build ## hostile code in real sandboxes against neighbours and the server, and hostile archives: what they take, what they reach, whom they hurt
	$(GO) run ./e2e/cmd/attacks $(if $(CASES),-run '$(CASES)') $(if $(SECTION),-section $(SECTION))

.PHONY: vm
vm: need-vm build ## a Debian with systemd and cgroup v2 under QEMU: doctor, demo, limits, some of the wall; at most 45 minutes
	$(GO) run ./e2e/cmd/vm $(ARGS)

.PHONY: v1
v1: need-v1 build ## the official SDKs of both generations at /v1, every answer held against the official description
	$(GO) run ./e2e/cmd/v1 $(ARGS)

.PHONY: images
images: need-images ## a real Docker loads and runs what was exported, and what it saves is imported
	DORMOUSE_DOCKER=1 $(GO) test -count=1 -v -run Docker ./e2e/adversary/archives

.PHONY: crash
crash: need-test crash-build ## kill the server at every named instant, restart, compare
	$(CRASH) -mode matrix $(if $(SAMPLE),-sample $(SAMPLE)) $(if $(STORE),-store $(STORE)) $(if $(SANDBOX),-sandbox $(SANDBOX) -parallel 2)

.PHONY: freezes
freezes: need-test crash-build ## freeze a server where it works on sandboxes, beside another one; with SANDBOX=gvisor in those
	$(CRASH) -mode freezes $(if $(SANDBOX),-sandbox $(SANDBOX))

.PHONY: storm
storm: need-test crash-build ## random kills from SEED, RUNS of them; with STORE=postgres SERVERS=3 of several servers
	$(CRASH) -mode storm -seed $(SEED) -runs $(RUNS) $(if $(STORE),-store $(STORE)) $(if $(SERVERS),-servers $(SERVERS))

.PHONY: naps
naps: need-run build ## SESSIONS fall asleep and wake in real sandboxes for MINUTES while servers and sandboxes are killed; needs root
	KILLS=20 $(GO) test -count=1 -run 'Killed|Dies' ./sandbox/gvisor
	$(CRASH) -mode naps -bin bin/dormouse -seed $(SEED) -sessions $(SESSIONS) -for $(MINUTES)m

# Hundreds of sessions come and go; what grows shows only over a long time.
.PHONY: soak
soak: SESSIONS = 500
soak: MINUTES = 60
soak: need-test build ## SESSIONS live and are deleted for MINUTES, on one server and on three, while everything is killed: what must not grow is measured; needs root
	$(CRASH) -mode soak -bin bin/dormouse -seed $(SEED) -sessions $(SESSIONS) -awake 30 -for $(MINUTES)m $(if $(STORE),-store $(STORE))

.PHONY: mutants
mutants: need-test crash-build ## break the server on purpose, one rule at a time; fail if no test notices; needs root
	$(CRASH) -mode mutants

# The overlay puts the runner with its crash points inside this server and leaves
# the ordinary one where it is.
.PHONY: crash-build
crash-build:
	mkdir -p bin/crash
	$(GO_BUILD) -tags crash -o bin/crash/dormouse-runner ./cmd/dormouse-runner
	printf '{"Replace":{"%s":"%s"}}\n' '$(CURDIR)/$(EMBEDDED)' '$(CURDIR)/bin/crash/dormouse-runner' > bin/crash/overlay.json
	$(GO_BUILD) -tags crash -overlay bin/crash/overlay.json -o bin/crash/dormouse ./cmd/dormouse

.PHONY: bench
bench: need-bench build ## ratios against real alternatives, in one run
	$(GO) run ./bench $(if $(BEFORE),-run versions -before '$(BEFORE)')

.PHONY: fuzz
fuzz: need-run ## every fuzz target for FUZZTIME, and long random walks
	scripts/fuzz $(FUZZTIME)
	WALKS=1000 $(GO) test -count=1 -run RandomWalk ./session/law

.PHONY: fmt
fmt: $(LINT)-$(GOLANGCI_VERSION) ## format everything
	$(LINT)-$(GOLANGCI_VERSION) fmt

.PHONY: lint
lint: $(LINT)-$(GOLANGCI_VERSION) ## format, arrows, clocks, exhaustive switches and the rest of .golangci.yml
	$(LINT)-$(GOLANGCI_VERSION) run ./...

.PHONY: dead
dead: $(DEADCODE)-$(DEADCODE_VERSION) ## code that nothing reaches
	$(DEADCODE)-$(DEADCODE_VERSION) -test ./... | grep -v "_test.go:.*func: Example" || true # which are compiled and shown

.PHONY: tools
tools: $(LINT)-$(GOLANGCI_VERSION) $(DEADCODE)-$(DEADCODE_VERSION) ## the pinned tools, into ./bin

# The version is part of the name, so that a new pin is a new file.
$(LINT)-$(GOLANGCI_VERSION):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(LINT) $@

$(DEADCODE)-$(DEADCODE_VERSION):
	GOBIN=$(CURDIR)/bin $(GO) install golang.org/x/tools/cmd/deadcode@$(DEADCODE_VERSION)
	mv $(DEADCODE) $@

# The S3 server of the tests. Several may want it at once, so it gets its name
# when it is whole.
$(VERSITY)-$(VERSITY_VERSION):
	mkdir -p bin && dir=$$(mktemp -d $(CURDIR)/bin/.versitygw-XXXXXX) && \
		GOBIN=$$dir $(GO) install -ldflags "-s -w" github.com/versity/versitygw/cmd/versitygw@$(VERSITY_VERSION) && \
		mv $$dir/versitygw $@ && rmdir $$dir

# Tests ask for it by this name and are told where it is.
.PHONY: s3-server
s3-server: $(VERSITY)-$(VERSITY_VERSION)
	@echo $(CURDIR)/$<

# What turns are measured beside. The bench looks for it by this name.
$(OPENCODE)-$(OPENCODE_VERSION):
	@scripts/need npm
	mkdir -p bin && dir=$$(mktemp -d $(CURDIR)/bin/.opencode-XXXXXX) && \
		npm install --prefix $$dir --no-fund --no-audit --ignore-scripts opencode-ai@$(OPENCODE_VERSION) && \
		node $$dir/node_modules/opencode-ai/postinstall.mjs && mv $$dir $@

# Certificates are for the Go modules.
.PHONY: need-run need-test need-bench need-images need-v1 need-vm
need-run:
	@scripts/need bash ca-certificates e2fsprogs git

# The race detector is linked with the C compiler. Tests run the database, and
# the pooler that must not stand before it, themselves, and an S3 server.
need-test: $(VERSITY)-$(VERSITY_VERSION)
	@scripts/need bash ca-certificates e2fsprogs git gcc libc6-dev postgresql pgbouncer python3-venv

# Sandboxes are measured beside Docker, and images tried with it. Both run it
# themselves. Snapshots are measured beside what people back up with, and turns
# beside another server for agents.
need-bench: need-test $(OPENCODE)-$(OPENCODE_VERSION)
	@scripts/need docker.io perl restic zstd

need-images: need-run
	@scripts/need docker.io

# Node is for the SDK in TypeScript.
need-v1: need-run
	@scripts/need nodejs npm

# The machine is made of Debian's own packages.
need-vm: need-run
	@scripts/need qemu-system-x86 mmdebstrap

.PHONY: clean
clean: ## remove what was built
	rm -rf bin $(EMBEDDED)
