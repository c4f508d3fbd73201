#!/usr/bin/env bash
# Checks a change in about a minute, without root: make check. It builds everything, and runs gofmt, vet, the linters and
# the unit tests on what changed. All checks run; the exit status tells whether one failed. What is left out is printed.
#
#   test/tools/check.sh MODULE_FOLDER...
#
# A change is what differs from the merge base with BASE (origin/main by default), new files included. Packages that
# import a changed one are vetted; those in cmd and internal are tested, too, after the changed ones. Tests run with
# -short, which plays a fifth of the random histories, and without the race detector. Each package has 20 s, and none
# starts later than 20 s after the first.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
modules=("${@:-.}")
each=20 starting=20
failed=() left=()

step() { # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  skipped=""
  if "$@"; then
    echo "check: $name: ${skipped:-ok} ($((SECONDS - start)) s)"
  else
    echo "check: $name: FAILED ($((SECONDS - start)) s)"
    failed+=("$name")
  fi
}

# leave NAME WHY notes a check that is left out.
leave() {
  skipped=$2
  left+=("$1: $2")
}

# The files of the change.
base=${BASE:-origin/main}
if ! from=$(git merge-base HEAD "$base" 2>/dev/null); then
  echo "check: git has no merge base with $base: checking only uncommitted changes"
  from=HEAD
fi
mapfile -d '' -t files < <(
  { git diff -z --name-only --no-renames "$from"; git ls-files -z -o --exclude-standard; } | sort -zu
)

# Each belongs to the package of its folder, or of the nearest one above: changed has the module of each package.
declare -A changed=()
mapfile -t folders < <(printf '%s\n' "${files[@]}" | sed -E 's#/testdata/.*##; t; s#/[^/]*$##; t; s#.*#.#' | sort -u)
for folder in "${folders[@]}"; do
  until [ "$folder" = . ] || compgen -G "$folder/*.go" >/dev/null; do folder=$(dirname "$folder"); done
  module=$folder
  until [ -e "$module/go.mod" ]; do module=$(dirname "$module"); done
  if [[ " ${modules[*]} " == *" $module "* ]]; then
    changed[$folder]=$module
  else
    leave "$folder" "make check does not check module $module"
  fi
done
# The tests of the root read every package.
[ ${#files[@]} -eq 0 ] || changed[.]=.

# packages MODULE prints its changed packages, as arguments in its folder.
packages() {
  local folder
  for folder in "${!changed[@]}"; do
    [ "${changed[$folder]}" != "$1" ] || realpath -ms --relative-to="$1" "$folder" | sed 's#^\([^.]\)#./\1#'
  done | sort
}

# importers PACKAGE... prints the packages of the main module that import one of these directly, in their tests too.
importers() {
  go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
    awk -v main="$(go list -m)" -v of="$*" '
      BEGIN { n = split(of, a); for (i = 1; i <= n; i++) is[main substr(a[i], 2)] }
      $1 in is { next }
      { for (i = 2; i <= NF; i++) if ($i in is) { print "." substr($1, length(main) + 1); next } }'
}

formatted() {
  local bad file go=()
  for file in "${files[@]}"; do
    if [[ $file == *.go && -f $file ]]; then go+=("$file"); fi
  done
  [ ${#go[@]} -gt 0 ] || return 0
  bad=$(gofmt -s -l "${go[@]}") || return 1
  [ -z "$bad" ] || { printf 'gofmt -s would change:\n%s\n' "$bad"; return 1; }
}

vet() { (cd "$1" && shift && go vet "$@"); }

linters() { # MODULE PACKAGE...
  local status=0
  local run=("$golangci" run --allow-parallel-runners --timeout 30s --config "$root/.golangci.yml")
  (cd "$1" && shift && "${run[@]}" "$@") || status=$?
  [ $status -ne 4 ] || { leave "golangci-lint $1" "not finished in 30 s"; return 0; }
  return $status
}

tests() { # PACKAGE
  local output
  if ! output=$(go test -short -timeout "${each}s" "$1" 2>&1); then
    grep -q '^panic: test timed out after' <<<"$output" || { echo "$output"; return 1; }
    leave "tests of $1" "not finished in $each s"
  fi
}

step build go build ./...
if [ ${#files[@]} -eq 0 ]; then
  echo "check: nothing differs from $base; BASE names another commit to compare with"
else
  step gofmt formatted
  mapfile -t own < <(packages .)
  mapfile -t users < <(importers "${own[@]}")
  step "vet ." vet . "${own[@]}" "${users[@]}"
  golangci=""
  if dir=$(test/tools/build.sh --built golangci-lint 2>/dev/null); then
    golangci=$dir/golangci-lint
    step "golangci-lint ." linters . "${own[@]}"
  else
    leave golangci-lint "not built yet; make lint builds it"
  fi
  for module in "${modules[@]}"; do
    mapfile -t others < <(packages "$module")
    if [ "$module" = . ] || [ ${#others[@]} -eq 0 ]; then continue; fi
    step "vet $module" vet "$module" "${others[@]}"
    [ -z "$golangci" ] || step "golangci-lint $module" linters "$module" "${others[@]}"
    leave "tests of $module" "make test and make e2e run them"
  done
  late=() first=$SECONDS
  for package in "${own[@]}" "${users[@]}"; do
    if [[ " ${own[*]} " != *" $package "* && $package != ./cmd/* && $package != ./internal/* ]]; then continue; fi
    if [ $((SECONDS - first)) -lt $starting ]; then step "test $package" tests "$package"; else late+=("$package"); fi
  done
  [ ${#late[@]} -eq 0 ] || leave "tests not started within $starting s" "${late[*]}"
fi

for text in "${left[@]}"; do echo "check: left out: $text"; done
if [ ${#failed[@]} -gt 0 ]; then
  echo "== make check: FAILED: $(IFS=,; echo "${failed[*]}") in $SECONDS s"
  exit 1
fi
echo "== make check: passed in $SECONDS s"
