#!/usr/bin/env bash
# Everything at full length: make soak. All parts run, also after one that failed; the exit status tells whether one did.
# ROUNDS is how often agent and runtimes are killed and restarted. PARTS runs some parts alone, by name.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
rounds=${ROUNDS:-100}
parts=${PARTS:-guests restarts switches churn lifetimes attacks fuzz histories unplugged oracle arm64}
told=()
failed=()
# What passed before is played again: go test would else repeat its old words, and those of old random histories.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-count=1"

part() { # NAME ABOUT COMMAND...
  local name=$1 about=$2 start=$SECONDS verdict=ok
  shift 2
  [[ " $parts " == *" $name "* ]] || { told+=("$name: not asked for"); return; }
  echo "== soak: $name: $about ($(date +%H:%M))"
  if ! "$@"; then
    verdict=FAILED
    failed+=("$name")
  fi
  told+=("$name: $verdict in $((SECONDS - start)) s")
  echo "== soak: ${told[-1]}"
}

real() { (cd test/real && TRIMTAB_SOAK=$1 go test -race -v -timeout 90m -run "$2" .); }

# The longest first: what is wrong there is known soonest.
part guests "all scenarios and lives in virtual machines, the proxy killed $rounds times" env TRIMTAB_SOAK="$rounds" make e2e
part restarts "agent and containerd restarted, the proxy killed, $rounds times each" real "$rounds" 'TestRestarts|TestProxyKilled'
part switches "NRI switched off and on, agent and runtime killed in random order, $((rounds / 2)) times each" real "$((rounds / 2))" 'TestAuto|TestChaos'
part churn "a thousand containers come, go and are resized, 5,000 steps; 10,000 calls of the agent fail" env TRIMTAB_SOAK="$rounds" go test -v -timeout 60m ./test/churn
part lifetimes "a million pods come and go in every order of their ends, and leave nothing in memory" env TRIMTAB_SOAK="$rounds" go test -v -timeout 60m ./test/lifetimes
part attacks "every kind of intent without requests that pay for it, every scenario beside every kind of runtime" \
  env TRIMTAB_SOAK="$rounds" go test -timeout 60m ./internal/conductor ./test/conformance -run 'TestUnpaid|TestOlderRuntimes'
part fuzz "the relay of the CRI proxy is sent frames and headers at random for an hour" test/tools/fuzz.sh 3600 ./internal/attach/relay
# What follows only computes, with little memory: collecting it less often saves a third of the time.
export GOGC=400
part histories "new random histories, a thousand of each kind" go test ./internal/conductor -timeout 60m -rapid.seed=0 -rapid.checks=1000
part unplugged "CPUs go and come under owners: every history of four steps, and every 41st of five" \
  bash -c 'TRIMTAB_SOAK=1 go test ./internal/conductor -timeout 3h -run "TestUnplugged$" && TRIMTAB_STRIDE=41 go test ./internal/conductor -timeout 3h -run "TestUnplugged$"'
part oracle "the kubelet's static CPU manager is asked, 5,000 machines" env -C test/oracle go test -v -timeout 60m . -rapid.checks=5000
part arm64 "the program for arm64 plays the demo, emulated" test/tools/arm64.sh

echo "== make soak: ${failed[*]:+FAILED: ${failed[*]}; }in $((SECONDS / 60)) min"
printf '   %s\n' "${told[@]}"
[ ${#failed[@]} -eq 0 ]
