#!/usr/bin/env bash
# Runs the demo with the program for arm64, emulated by qemu-user, and compares its output with that of this machine's
# program. The comparison leaves out the time in the last line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
test/tools/deps.sh soak
make -s programs build
played() { "$@" demo | sed 's/, in [0-9.a-zµ]*$//'; }
here=$(played bin/trimtab)
there=$(played qemu-aarch64-static .cache/dist/linux-arm64/trimtab)
diff <(echo "$here") <(echo "$there") || { echo "arm64: the demo's output differs" >&2; exit 1; }
tail -n 1 <<<"$there"
