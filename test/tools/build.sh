#!/usr/bin/env bash
# Builds the tools that the tests run, once, each from its own pinned module. It prints the folder of each to standard
# output, one per line, in the order of the arguments. Progress goes to standard error.
#
#   test/tools/build.sh containerd runc
#   test/tools/build.sh --built containerd   builds nothing, and fails if the tool is not built yet
#
# A folder's name has tool, version and a hash of all inputs, so a finished folder never changes and a warm call only
# computes hashes. TRIMTAB_CACHE moves the cache from .cache/tools of the checkout.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRIMTAB_CACHE:-$here/../../.cache/tools}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
go_version=$(go env GOVERSION)
# A caller's workspace or flags must not change what is built here.
export GOWORK=off GOFLAGS=-mod=readonly

say() { printf 'tools: %s\n' "$*" >&2; }

# describe TOOL sets module, folder (of its go.mod), expected (cold seconds on two cores), needs (C libraries) and recipe:
# the arguments of `go build` after the environment it wants, in which VERSION stands for the module's version. The runtime's binaries and the kubelet are
# static, so they also run inside other root file systems.
describe() {
  local static="CGO_ENABLED=0 -tags netgo,osusergo"
  needs="" folder=$1
  case $1 in
    containerd)
      module=github.com/containerd/containerd/v2 expected=180
      recipe="$static,no_btrfs,no_devmapper,no_zfs -ldflags=-X=$module/version.Version=VERSION
        $module/cmd/containerd $module/cmd/containerd-shim-runc-v2" ;;
    containerd17)
      module=github.com/containerd/containerd expected=130
      recipe="$static,no_btrfs,no_devmapper,no_zfs -ldflags=-X=$module/version.Version=VERSION
        $module/cmd/containerd $module/cmd/containerd-shim-runc-v2" ;;
    ctr)
      module=github.com/containerd/containerd/v2 expected=60 folder=containerd
      recipe="$static,no_btrfs,no_devmapper,no_zfs -ldflags=-X=$module/version.Version=VERSION $module/cmd/ctr" ;;
    runc)
      module=github.com/opencontainers/runc expected=50 needs=libseccomp
      recipe="CGO_ENABLED=1 -tags netgo,osusergo,seccomp -ldflags=-extldflags=-static $module" ;;
    kubelet)
      module=k8s.io/kubernetes expected=400
      recipe="$static -ldflags=-X=k8s.io/component-base/version.gitVersion=VERSION $module/cmd/kubelet" ;;
    kube-apiserver | kube-controller-manager | kube-scheduler)
      module=k8s.io/kubernetes expected=400 folder=kubernetes
      recipe="$static -ldflags=-X=k8s.io/component-base/version.gitVersion=VERSION $module/cmd/$1" ;;
    kubectl)
      module=k8s.io/kubernetes expected=120
      recipe="$static -ldflags=-X=k8s.io/component-base/version.gitVersion=VERSION $module/cmd/kubectl" ;;
    topology-scheduler)
      module=sigs.k8s.io/scheduler-plugins expected=400 folder=scheduler recipe="$static ." ;;
    etcd)
      module=go.etcd.io/etcd/server/v3 expected=90 recipe="CGO_ENABLED=0 $module" ;;
    helm)
      module=helm.sh/helm/v4 expected=240
      recipe="$static -ldflags=-X=$module/internal/version.version=VERSION $module/cmd/helm" ;;
    nfpm)
      module=github.com/goreleaser/nfpm/v2 expected=60 recipe="$static -ldflags=-X=main.version=VERSION $module/cmd/nfpm" ;;
    promtool)
      # Without target discovery, which is most of the program and checks no rule.
      module=github.com/prometheus/prometheus expected=120
      recipe="$static,remove_all_sd -ldflags=-X=github.com/prometheus/common/version.Version=VERSION $module/cmd/promtool" ;;
    golangci-lint)
      module=github.com/golangci/golangci-lint/v2 expected=120 recipe="CGO_ENABLED=0 $module/cmd/golangci-lint" ;;
    govulncheck)
      module=golang.org/x/vuln expected=10 recipe="CGO_ENABLED=0 $module/cmd/govulncheck" ;;
    h2spec)
      module=github.com/summerwind/h2spec expected=30 recipe="CGO_ENABLED=0 $module/cmd/h2spec" ;;
    *) say "no such tool: $1 (containerd, containerd17, ctr, runc, kubelet, kube-apiserver, kube-controller-manager, kube-scheduler,
      topology-scheduler, kubectl, etcd, helm, nfpm, promtool, golangci-lint, govulncheck, h2spec)"; exit 2 ;;
  esac
}

# compile VERSION INTO builds by the recipe.
compile() {
  local words link="-s -w"
  read -r -d '' -a words <<<"${recipe//VERSION/$1}" || true
  local rest=()
  for word in "${words[@]:1}"; do
    case $word in
      -ldflags=*) link+=" ${word#-ldflags=}" ;;
      *) rest+=("$word") ;;
    esac
  done
  env "${words[0]}" go build -trimpath -o "$2/" -ldflags "$link" "${rest[@]}"
}

need() {
  if ! command -v pkg-config >/dev/null || ! pkg-config --exists "$1"; then
    say "$1 is missing: apt-get install -y ${1}-dev pkg-config gcc (make test does this by itself)"
    exit 1
  fi
}

build() {
  local tool=$1 version hash dir start took last work
  describe "$tool"
  cd "$here/$folder"
  version=$(awk -v m="$module" '$1 == m && $2 ~ /^v/ {print $2} $2 == m && $3 ~ /^v/ {print $3}' go.mod | head -1)
  [ -n "$version" ] || { say "$tool: $module is not in $here/$folder/go.mod"; exit 1; }
  hash=$(cat go.mod go.sum $(find . -maxdepth 1 -name '*.go') <(echo "$go_version $(uname -m) $recipe") | sha256sum | cut -c1-12)
  dir=$cache/$tool-$version-$hash
  if [ ! -e "$dir/done" ] && [ -n "$built" ]; then
    say "$tool $version is not built"
    exit 1
  fi
  if [ ! -e "$dir/done" ]; then
    exec 9>"$cache/$tool.lock"
    if ! flock -n 9; then
      say "$tool $version: another run builds it, waiting"
      flock 9
    fi
  fi
  if [ ! -e "$dir/done" ]; then
    [ -z "$needs" ] || need "$needs"
    last="up to $expected s on two cores when nothing is cached"
    [ ! -s "$cache/$tool.took" ] || last="$(cat "$cache/$tool.took") s last time"
    say "$tool $version: building ($last)"
    start=$(date +%s)
    work=$(mktemp -d "$cache/.$tool.XXXXXX")
    # The build does not inherit the lock's descriptor: children that outlive it must not hold the lock.
    if ! compile "$version" "$work" >&2 9>&-; then
      rm -rf "$work"
      say "$tool $version: build failed"
      exit 1
    fi
    took=$(($(date +%s) - start))
    echo "$took" >"$cache/$tool.took"
    touch "$work/done"
    rm -rf "$dir"
    mv "$work" "$dir"
    chmod 755 "$dir"
    say "$tool $version: built in $took s"
  fi
  exec 9>&-
  echo "$dir"
}

built=""
[ "${1:-}" != --built ] || { built=yes; shift; }
[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
for tool; do build "$tool"; done
