#!/usr/bin/env bash
# Plays the demo with the program for arm64, emulated (qemu-user), and compares what it prints with what this machine's
# program prints. The last line has the time it took, which is cut off.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
test/tools/deps.sh soak
make -s programs build
played() { "$@" demo | sed 's/, in [0-9.a-zµ]*$//'; }
here=$(played bin/trimtab)
there=$(played qemu-aarch64-static .cache/dist/linux-arm64/trimtab)
diff <(echo "$here") <(echo "$there") || { echo "arm64: the demo prints something else" >&2; exit 1; }
tail -n 1 <<<"$there"
