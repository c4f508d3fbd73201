#!/usr/bin/env bash
# Installs missing Debian packages for building and testing. If none is missing, it does nothing.
#
#   test/tools/deps.sh        what make test needs
#   test/tools/deps.sh e2e    and what the virtual machines of make e2e need
#   test/tools/deps.sh soak   and what make soak needs beside those
set -euo pipefail

missing=()
need() { # COMMAND PACKAGE
  command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || missing+=("$2")
}
need gcc gcc # the race detector and runc are built with cgo
need pkg-config pkg-config
need flock util-linux
need ip iproute2
need containerd containerd # 1.6: a runtime without NRI for the tests
compgen -G '/usr/lib/*/libdevmapper.so.1.02.1' >/dev/null || missing+=(libdevmapper1.02.1) # for the dockerd of docker.sh
need jq jq # commands in docs, for test/pages
need nghttp nghttp2-client # and h2load: other implementations of HTTP/2 than Go's, for test/http2
need nghttpd nghttp2-server
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
pkg-config --exists libseccomp 2>/dev/null || missing+=(libseccomp-dev)

if [ "${1:-}" = e2e ]; then
  need qemu-system-x86_64 qemu-system-x86
  need qemu-img qemu-utils
  need mkfs.ext4 e2fsprogs
  need depmod kmod
  need xz xz-utils
  need mmdebstrap mmdebstrap
  need flex flex # flex, bison and libelf build a kernel with core scheduling
  need bison bison
  [ -e /usr/include/libelf.h ] || missing+=(libelf-dev)
  need bc bc
  need chromium chromium # 400 MB: the web page of a node in a real browser
  # The static busybox: guests have no libraries.
  dpkg-query -W -f '${db:Status-Status}' busybox-static 2>/dev/null | grep -qx installed || missing+=(busybox-static)
fi
if [ "${1:-}" = soak ]; then
  need qemu-aarch64-static qemu-user-static # the program for arm64
fi

[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null; then
  echo "deps: install these packages (names as in Debian): ${missing[*]}" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "deps: run: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo -n)
fi
echo "deps: installing ${missing[*]}" >&2
apt() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null >/dev/null; }
# An interrupted installation would make each later one fail. If another program installs now, apt waits for it.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a </dev/null >/dev/null || true
apt update
apt install -y --no-install-recommends "${missing[@]}"
