#!/usr/bin/env bash
# Runs everything at full length: make soak. All parts run, also after a failure; the exit status is 1 if one failed.
# ROUNDS is the number of kills and restarts of agent and runtimes. PARTS selects parts by name.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
rounds=${ROUNDS:-100}
parts=${PARTS:-guests restarts switches churn lifetimes races attacks fuzz histories unplugged oracle arm64}
results=()
failed=()
# Tests that passed before run again, instead of go test's cached results.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-count=1"

part() { # NAME ABOUT COMMAND...
  local name=$1 about=$2 start=$SECONDS verdict=ok
  shift 2
  [[ " $parts " == *" $name "* ]] || { results+=("$name: not selected"); return; }
  echo "== soak: $name: $about ($(date +%H:%M))"
  if ! "$@"; then
    verdict=FAILED
    failed+=("$name")
  fi
  results+=("$name: $verdict in $((SECONDS - start)) s")
  echo "== soak: ${results[-1]}"
}

real() { (cd test/real && TRIMTAB_SOAK=$1 go test -race -v -timeout 90m -run "$2" .); }

# The longest part comes first, so that its failures are known early.
part guests "all suites and scenarios in virtual machines, the proxy killed $rounds times" env TRIMTAB_SOAK="$rounds" make e2e
part restarts "agent and containerd restarted, the proxy killed, $rounds times each" real "$rounds" 'TestRestarts|TestProxyKilled'
part switches "NRI switched off and on, agent and runtime killed in random order, $((rounds / 2)) times each" real "$((rounds / 2))" 'TestAuto|TestChaos'
part churn "a thousand containers are created, resized and removed, 5,000 steps; 10,000 calls of the agent fail" env TRIMTAB_SOAK="$rounds" go test -v -timeout 60m ./test/churn
part lifetimes "a million pods start and end, with end events in every order, and leave nothing in memory" env TRIMTAB_SOAK="$rounds" go test -v -timeout 60m ./test/lifetimes
part races "histories of the whole agent with the race detector" \
  go test -race -timeout 90m ${HISTORIES:-./cmd/trimtab ./test/...}
part attacks "every kind of request without resources that pay for it, every scenario with every kind of runtime" \
  env TRIMTAB_SOAK="$rounds" go test -timeout 60m ./internal/conductor ./test/conformance -run 'TestUnpaid|TestOlderRuntimes'
part fuzz "random frames and headers for the relay of the CRI proxy, for an hour" test/tools/fuzz.sh 3600 ./internal/attach/relay
# The next parts need CPU time and little memory: less garbage collection saves a third of their time.
export GOGC=400
part histories "new random histories, a thousand of each kind" go test ./internal/conductor -timeout 60m -rapid.seed=0 -rapid.checks=1000
part unplugged "owned CPUs go offline and online: every history of four steps, and every 41st of five" \
  bash -c 'TRIMTAB_SOAK=1 go test ./internal/conductor -timeout 3h -run "TestHotplugHistories$" && TRIMTAB_STRIDE=41 go test ./internal/conductor -timeout 3h -run "TestHotplugHistories$"'
part oracle "choices compared with the kubelet's CPU and topology managers, 5,000 machines" env -C test/oracle go test -v -timeout 60m . -rapid.checks=5000
part arm64 "the program for arm64 plays the demo, emulated" test/tools/arm64.sh

echo "== make soak: ${failed[*]:+FAILED: ${failed[*]}; }in $((SECONDS / 60)) min"
printf '   %s\n' "${results[@]}"
[ ${#failed[@]} -eq 0 ]
