#!/usr/bin/env bash
# Installs with apt what the build needs and the machine lacks (Debian 12), as root or by sudo.
# HT_REPLACE_BOOST=1 lets apt remove another version's Boost headers, which cannot stand beside 1.81.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache
  libdnnl-dev libboost1.81-dev libboost-json1.81-dev libboost-program-options1.81-dev libboost-context1.81-dev
  libcereal-dev libeigen3-dev libpcre2-dev libxxhash-dev libgtest-dev
)

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $1"; shift; for line in "$@"; do say "       $line"; done; exit 1; }
installed() { dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "no apt here: make sure that these, by their Debian names, are installed: ${packages[*]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
[ ${#missing[@]} -gt 0 ] || exit 0

if [[ " ${missing[*]} " == *" libboost1.81-dev "* ]]; then
  other=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' 'libboost1.*-dev' 2>/dev/null |
    sed -n 's/^ii *\(libboost1\.[0-9]*-dev\)$/\1/p' | head -n 1)
  if [ -n "$other" ] && [ "${HT_REPLACE_BOOST:-}" != 1 ]; then
    fail "$other is installed, and Debian's Boost 1.81 headers cannot stand beside it" \
      "HybridTrainer needs 1.81 (Boost.JSON is not in 1.74). To let apt replace it, run" \
      "  HT_REPLACE_BOOST=1 scripts/install_dependencies.sh"
  fi
  [ -z "$other" ] || say "$other and what depends on it is replaced by Boost 1.81"
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "these packages are missing, and there is neither root nor sudo: ${missing[*]}"
  root=(sudo)
fi

say "installing with apt: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@" >"$log" 2>&1; }
apt update || say "warning: apt-get update failed; trying with the lists that are there"
apt install -y --no-install-recommends "${missing[@]}" || {
  tail -n 15 "$log" >&2
  fail "apt-get could not install: ${missing[*]}" "HybridTrainer is made for Debian 12 (bookworm); this is $(
    . /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-another system}")"
}
