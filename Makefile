# Trimtab's commands. On a fresh Debian with Go, git, gcc and make, `make test` installs missing packages and builds the
# tools once into .cache.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Every Go module with tests of its own. The tools' modules have none.
MODULES := . $(patsubst %/go.mod,%,$(wildcard test/*/go.mod deploy/*/go.mod))
# make e2e runs test/vm. Only make soak runs test/oracle, since its kubelet takes minutes to build.
TESTED := $(filter-out test/vm test/oracle,$(MODULES))
# Histories of the whole agent on the embedded runtime: the race detector makes them several times slower, so only make
# soak runs them with it. The packages that they call are tested with it in every run.
HISTORIES := ./cmd/trimtab ./test/churn ./test/conformance ./test/lifetimes ./test/recorded ./test/scenarios
# Without a usable git, builds have no version stamp.
VCS := $(shell git status >/dev/null 2>&1 && echo auto || echo false)
# Leaves out the WebAssembly runtime of the NRI library and the trace pages of gRPC, which Trimtab does not use.
TAGS := nri_no_wasm,grpcnotrace$(MORE_TAGS:%=,%)
# Released programs are static, and built for the oldest processors of each architecture.
ARCHES := amd64 arm64
# The kubectl plugin also runs on workstations.
PLUGINS := $(ARCHES:%=linux-%) $(ARCHES:%=darwin-%)
# The output directory, and the name of the image.
DIST ?= dist
IMAGE ?= ghcr.io/trimtab/trimtab
# The image's tag; by default the version of the program.
TAG ?=
# Two guests at a time, one processor each. One suite takes far longer than the others.
GUESTS = -p 1 -parallel 2 -timeout $(if $(TRIMTAB_SOAK),4h,80m)
# More arguments for go test, such as ARGS='-run TestSmoke -v'.
ARGS ?=

.PHONY: help build demo check test e2e soak lint generate stale size bench benchreal tools deps clean \
	programs plugins image deb release chart

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/trimtab, bin/kubectl-trimtab and bin/trimtab-oci
	@mkdir -p bin
	@go build -buildvcs=$(VCS) -trimpath -tags $(TAGS) -ldflags '-s -w' -o bin/ ./cmd/trimtab
	@CGO_ENABLED=0 go build -buildvcs=$(VCS) -trimpath -ldflags '-s -w' -o bin/ ./cmd/kubectl-trimtab ./cmd/trimtab-oci

programs:
	@for arch in $(ARCHES); do \
		mkdir -p .cache/dist/linux-$$arch; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch GOAMD64=v1 GOARM64=v8.0 go build -buildvcs=$(VCS) -trimpath -tags $(TAGS) \
			-ldflags '-s -w' -o .cache/dist/linux-$$arch/ ./cmd/trimtab ./cmd/trimtab-oci; \
	done

plugins:
	@for system in $(PLUGINS); do \
		mkdir -p .cache/dist/plugins/$$system; \
		CGO_ENABLED=0 GOOS=$${system%-*} GOARCH=$${system#*-} GOAMD64=v1 GOARM64=v8.0 go build -buildvcs=$(VCS) -trimpath \
			-ldflags '-s -w' -o .cache/dist/plugins/$$system/ ./cmd/kubectl-trimtab; \
	done

# The packer has a module of its own, so that its dependencies are not those of the agent.
PACK = cd deploy/pack && go build -trimpath -buildvcs=false -o ../../.cache/dist/ ./cmd/pack && cd ../.. && .cache/dist/pack

image: programs ## Make the container image for amd64 and arm64, as an OCI layout that `ctr images import` takes
	@$(PACK) image -out $(DIST)/trimtab-image.tar -name $(IMAGE) -tag "$(TAG)" $(ARCHES:%=.cache/dist/linux-%/trimtab)

deb: programs ## Make the Debian packages for amd64 and arm64
	@dir=$$(test/tools/build.sh nfpm); $(PACK) deb -nfpm $$dir/nfpm -out $(DIST) $(ARCHES:%=.cache/dist/linux-%/trimtab)

release: programs plugins ## Make everything of a release, from a commit with a tag: image, packages, archives, chart, checksums
	@dir=$$(test/tools/build.sh nfpm); \
		$(PACK) release -nfpm $$dir/nfpm -out $(DIST) -name $(IMAGE) -plugins .cache/dist/plugins $(ARCHES:%=.cache/dist/linux-%/trimtab)

chart: ## Write anew what is made from the chart: schema, manifest, alerts, dashboard, the lists in docs/install.md
	@cd deploy/pack && go test -count=1 -run '^TestGenerated$$' ./chart ./monitoring -update

demo: build ## Show what Trimtab does, without a cluster
	@bin/trimtab demo

check: ## Check what changed, in about a minute and without root: build, format, vet, lint, unit tests
	@test/tools/check.sh $(filter-out test/oracle,$(MODULES))

test: deps tools ## Run every test: units, then a real containerd with the host's cgroups
	@failed=""; results=""; all=$$SECONDS; \
	for module in $(TESTED); do \
		echo "== go test: module $$module"; start=$$SECONDS; \
		test/tools/gotest.sh "$$module" "$(HISTORIES)" -tags $(TAGS) $(ARGS) || failed="$$failed $$module"; \
		results="$$results, $$module $$((SECONDS - start)) s"; \
	done; \
	verdict=passed; [ -z "$$failed" ] || verdict="FAILED ($${failed# })"; \
	echo "== make test: $$verdict in $$((SECONDS - all)) s ($${results#, })"; \
	[ -z "$$failed" ]

e2e: ## Run the suites in virtual machines: cgroup v2, NUMA, threads, systemd
	@test/tools/deps.sh e2e
	@test/tools/space.sh 12
	@mkdir -p .cache; cd test/vm && go build -o ../../.cache/e2e-report ./report
	@cd test/vm && { go test -json -count=1 $(GUESTS) $(ARGS) ./... || true; } | ../../.cache/e2e-report

soak: deps tools ## Run everything at full length: restarts, random histories, all suites in guests (an hour or two)
	@HISTORIES="$(HISTORIES)" test/tools/soak.sh

lint: ## Check formatting, vet, linters, generated files, known vulnerabilities
	@test/tools/lint.sh $(filter-out test/oracle,$(MODULES))

generate: ## Write the generated files anew
	@go generate ./...

stale: ## Fail if `make generate` changes anything
	@test/tools/stale.sh

size: ## Print lines of code by package, methods and fields by type, and long functions
	@go run ./internal/tools/size

bench: ## Run the benchmarks
	@go test -run '^$$' -bench . -benchmem $(ARGS) ./...
	@if [ -f test/bench/go.mod ]; then cd test/bench && go test -run '^$$' -bench . -benchmem $(ARGS) ./...; fi

benchreal: tools ## Run the benchmark on the real containerd (minutes, needs root)
	@cd test/real && go test -count=1 -run '^$$' -bench . $(ARGS) .

tools: ## Build the real containerds, runc, ctr, helm, nfpm, promtool and h2spec that the tests use (minutes once, then nothing)
	@printf '%s\n' helm containerd promtool containerd17 nfpm runc h2spec ctr | xargs -P 2 -n 1 test/tools/build.sh >/dev/null

deps: ## Install the Debian packages that the tests need and this machine lacks
	@test/tools/deps.sh

clean: ## Remove what was built, the tools too
	@rm -rf bin dist .cache
