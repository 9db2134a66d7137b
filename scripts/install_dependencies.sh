#!/usr/bin/env bash
# Installs missing build packages with apt (Debian 12), as root or with sudo.
# HT_REPLACE_BOOST=1 lets apt remove Boost headers of other versions, which conflict with 1.81.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"

# dnnl-config.cmake requires OpenCL, which libdnnl-dev only recommends.
packages=(
  g++ cmake ninja-build ccache
  libdnnl-dev ocl-icd-opencl-dev libboost1.81-dev libboost-json1.81-dev libboost-program-options1.81-dev
  libboost-context1.81-dev libcereal-dev libeigen3-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev libgtest-dev
  libsodium-dev libsnappy-dev libpcre2-dev libpng-dev libjpeg62-turbo-dev libopenmpi-dev openmpi-bin
)
unavailable=69 # see docs/EXIT_CODES.md

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit $unavailable; }
# Prints the given packages that are not completely installed.
missing_of() {
  local state
  state=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do grep -q "^ii  *$package\$" <<<"$state" || echo "$package"; done
}
other_boost() {
  local state
  state=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' 'libboost1.*-dev' 2>/dev/null || true)
  sed -n 's/^ii *\(libboost1\.[0-9]*-dev\)$/\1/p' <<<"$state" | grep -v '^libboost1\.81-dev$' | head -n 1 || true
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "no apt here: make sure that these, by their Debian names, are installed: ${packages[*]}"
  exit 0
fi
mapfile -t missing < <(missing_of "${packages[@]}")
[ ${#missing[@]} -gt 0 ] || exit 0

other=$(other_boost)
if [[ -n $other && " ${missing[*]} " == *" libboost1.81-dev "* ]]; then
  [ "${HT_REPLACE_BOOST:-}" = 1 ] ||
    fail "$other is installed, and Boost 1.81's headers, which are needed, cannot stand beside it;" \
      "HT_REPLACE_BOOST=1 scripts/install_dependencies.sh lets apt replace it"
  say "$other and what depends on it is replaced by Boost 1.81"
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
  by_hand="as root: apt-get install --no-install-recommends ${missing[*]}"
  command -v sudo >/dev/null || fail "packages are missing, and there is neither root nor sudo to install them; $by_hand"
  [ -t 0 ] || sudo -n true 2>/dev/null || fail "packages are missing, and sudo asks for a password without a terminal; $by_hand"
  root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -o DPkg::Lock::Timeout=120 "$@" >>"$log" 2>&1; }
said() { grep -qiE "$1" "$log"; }

# Prints in one line why apt failed.
explain() {
  local system
  system=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}" || true)
  if said 'dpkg was interrupted'; then
    fail "dpkg was interrupted earlier and blocks every installation; repair it with: dpkg --configure -a"
  elif said 'unmet dependencies|fix-broken|held broken packages'; then
    fail "this machine's packages contradict each other, so that apt installs nothing; repair them with: apt-get --fix-broken install"
  elif said 'could not get lock|unable to acquire the dpkg frontend lock'; then
    fail "another program holds dpkg's lock; wait until it is done and start again"
  elif said 'no space left'; then
    fail "the disk is full: $(grep -iE 'no space left' "$log" | head -n 1)"
  elif said 'temporary failure resolving|could not resolve|could not connect|network is unreachable|connection (failed|timed out)|failed to fetch'; then
    fail "apt does not reach its package source ($(grep -oE 'https?://[^/ ]+' "$log" | head -n 1)); connect this machine to it, or install by hand: ${missing[*]}"
  elif said 'unable to locate package|has no installation candidate'; then
    fail "$(grep -iE 'unable to locate package|no installation candidate' "$log" | head -n 1 | sed 's/^E: //'); HybridTrainer is made for Debian 12 (bookworm), this is ${system:-another system}"
  fi
  fail "apt-get cannot install ${missing[*]}: $(grep -E '^E:' "$log" | tail -n 1 || tail -n 1 "$log")"
}

say "installing with apt: ${missing[*]}"
# Existing package lists may suffice. If install fails, the output of update explains it.
apt update || true
apt install -y --no-install-recommends "${missing[@]}" || explain
mapfile -t missing < <(missing_of "${missing[@]}")
[ ${#missing[@]} -eq 0 ] || fail "apt-get said nothing, and these packages are not there: ${missing[*]}"
