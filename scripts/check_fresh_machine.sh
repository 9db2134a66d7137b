#!/usr/bin/env bash
# Runs a newcomer's first steps in a bare Debian 12 root without any packages: a clean clone of HEAD, and the README's
# first commands. Needs root or user namespaces; without them it prints a message and exits with 0.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
usage: scripts/check_fresh_machine.sh [--full] [--shared-cache]

Makes a bare root file system of Debian 12 with mmdebstrap from this machine's package source (kept for the next time in
$HT_FRESH_CACHE, by default ~/.cache/hybrid_trainer), copies a clean clone of HEAD into it, and there, with nothing else
on the path, tries what scripts/install_dependencies.sh says without root, without a network and with a broken dpkg; then
scripts/build.sh, an installation, and the commands of README and GUIDE (scripts/check_guide.sh); then scripts/build.sh
again with a package gone, as after a git pull that needs a new one; at last the Debian packages and the archive on
another bare root.

  --full          also runs scripts/test.sh there
  --shared-cache  reuses this machine's ccache, for the same compiler, path and headers
TEXT
}

full="" shared_cache=""
for option in "$@"; do
  case $option in
    --full) full=1 ;;
    --shared-cache) shared_cache=1 ;;
    -h | --help) usage && exit 0 ;;
    *) echo "error: unknown option $option; see --help" >&2 && exit 64 ;;
  esac
done
fail() { echo "error: $1" >&2; exit "${2:-1}"; }

# Uses a private mount namespace, so nothing needs to be unmounted. A user other than root becomes its root.
if [ -z "${HT_IN_NAMESPACE:-}" ]; then
  namespace=(unshare --mount --pid --fork --kill-child)
  [ "$(id -u)" -eq 0 ] || namespace+=(--map-root-user --map-auto)
  if ! problem=$("${namespace[@]}" mount -t tmpfs none /mnt 2>&1); then
    echo "SKIPPED check_fresh_machine.sh: neither root nor user namespaces are allowed here (${problem:-unshare failed})"
    exit 0
  fi
  if ! command -v mmdebstrap >/dev/null; then
    [ "$(id -u)" -eq 0 ] || fail "mmdebstrap is missing; as root: apt-get install --no-install-recommends mmdebstrap" 69
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mmdebstrap >/dev/null 2>&1 ||
      { apt-get update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mmdebstrap >/dev/null; }
  fi
  HT_IN_NAMESPACE=1 exec "${namespace[@]}" scripts/check_fresh_machine.sh "$@"
fi

cache=${HT_FRESH_CACHE:-$HOME/.cache/hybrid_trainer}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/hybrid-fresh.XXXXXX")
root=$work/root
release_root() {
  local folder
  for folder in proc dev ccache; do
    if mountpoint -q "$root/$folder"; then umount -R -l "$root/$folder"; fi
  done
}
clean_up() {
  release_root && rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# Prints this machine's Debian 12 archives, one per line.
package_sources() {
  apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | sort -u |
    sed -nE 's/^([^ ]+) (bookworm(-updates|-security)?)$/deb \1 \2 main/p'
}

# Makes a bare root file system in $root.
make_bare_root() {
  local image=$cache/debian-12-minbase.tar
  mkdir -p "$cache" "$root"
  package_sources >"$work/sources.list"
  [ -s "$work/sources.list" ] || fail "this machine's apt knows no archive of Debian 12 (bookworm) to make a root from" 69
  apt-config dump Acquire >"$work/acquire"
  if [ ! -s "$image" ]; then
    echo "== making a bare root ($image)"
    mmdebstrap --quiet --variant=minbase --aptopt="$work/acquire" bookworm "$image.partial" "$work/sources.list" --format=tar \
      >"$work/log" 2>&1 || fail "mmdebstrap failed: $(grep -E '^E:' "$work/log" | tail -n 1)" 69
    mv "$image.partial" "$image"
  fi
  tar -C "$root" --exclude=./dev/\* -xf "$image"
  cp "$work/sources.list" "$root/etc/apt/sources.list"
  # Copies this machine's access to the archive: proxies, certificates, names.
  cp "$work/acquire" "$root/etc/apt/apt.conf.d/99acquire"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  if [ -e /etc/pip.conf ]; then cp /etc/pip.conf "$root/etc/"; fi
  mkdir -p "$root/etc/ssl/certs"
  if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/of-host.crt"  # Debian's package replaces the certificates
  fi
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mkdir -p "$root$PWD"
  if [ -n "$shared_cache" ]; then
    mkdir -p "$root/ccache" "$(ccache --get-config cache_dir)"
    mount --bind "$(ccache --get-config cache_dir)" "$root/ccache"
  fi
}

bare() {
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb \
    ${https_proxy:+https_proxy="$https_proxy"} ${http_proxy:+http_proxy="$http_proxy"} \
    $([ ! -e "$root/etc/ssl/of-host.crt" ] || echo PIP_CERT=/etc/ssl/of-host.crt) \
    ${shared_cache:+CCACHE_COMPILERCHECK=content CCACHE_DIR=/ccache CCACHE_BASEDIR="$(ccache --get-config base_dir)"} bash -c "cd '$PWD' && $1"
}

# Runs a command that must succeed, and shows its last line.
step() {
  local begin=$SECONDS
  if ! bare "$1" >"$work/log" 2>&1; then
    tail -n 15 "$work/log"
    fail "on a bare machine this fails: $1"
  fi
  printf '%5d s  %s\n         %s\n' $((SECONDS - begin)) "$1" "$(grep -v '^$' "$work/log" | tail -n 1)"
}

# Runs a command that must fail with one line that contains a text.
refusal() {
  local name=$1 text=$2 command=$3
  if bare "$command" >"$work/log" 2>&1; then fail "$name: it did not fail: $command"; fi
  local lines
  lines=$(grep -c '^error:' "$work/log" || true)
  if [ "$lines" -ne 1 ] || ! grep -q "^error:.*$text" "$work/log"; then
    cat "$work/log"
    fail "$name: want one line \"error: ... $text ...\", got $lines"
  fi
  printf '   told  %s: %s\n' "$name" "$(grep '^error:' "$work/log")"
}

make_bare_root
git clone --quiet --no-local --depth 1 "file://$PWD" "$root$PWD"
echo "== what is said where nothing can be installed"
refusal "without root" "neither root nor sudo" "setpriv --reuid=65534 --regid=65534 --clear-groups scripts/build.sh"
refusal "without a network" "does not reach its package source" "unshare --net scripts/build.sh"
bare 'mkdir -p /var/lib/dpkg/updates && printf "Package: x\n" >/var/lib/dpkg/updates/0001'
refusal "an interrupted dpkg" "dpkg --configure -a" "scripts/build.sh"
bare 'rm /var/lib/dpkg/updates/0001 && cp /var/lib/dpkg/status /tmp/status
      printf "\nPackage: broken\nStatus: install ok installed\nArchitecture: all\nVersion: 1\nMaintainer: x\nDepends: absent\nDescription: x\n" >>/var/lib/dpkg/status'
refusal "packages that contradict each other" "apt-get --fix-broken install" "scripts/build.sh"
bare 'cp /tmp/status /var/lib/dpkg/status'

echo "== what a newcomer runs"
step 'scripts/build.sh'
step 'build/bin/hybrid --version'
step 'build/bin/hybrid prepare README.md --output /tmp/data --tokenizer characters'
step 'build/bin/hybrid train --preset tiny --data /tmp/data --run /tmp/run --set training.steps=4 --set data.sequence_length=32'
step 'cmake --install build --prefix /tmp/installed && cd / && /tmp/installed/bin/hybrid inspect /tmp/run'
bare scripts/check_guide.sh || fail "a command of README or GUIDE does not work on a bare machine"
step 'apt-get install -y --no-install-recommends dpkg-dev file >/dev/null && cpack --config build/CPackConfig.cmake && cpack --config build/CPackConfig.cmake -G TGZ'
echo "== after a git pull that needs a package more"
bare 'dpkg --purge --force-depends libxxhash-dev >/dev/null'
step 'scripts/build.sh'
if [ -n "$full" ]; then
  echo "== all tests"
  step 'scripts/test.sh'
fi
echo "== the packages on another bare machine"
mv "$root$PWD/build/packages" "$work/packages"
release_root
root=$work/second
make_bare_root
rmdir "$root$PWD" && mv "$work/packages" "$root$PWD"
step 'apt-get update >/dev/null && apt-get install -y --no-install-recommends ./hybrid-trainer_*.deb'
step '! dpkg -l | grep -i openmpi && hybrid doctor'
step 'gzip -t /usr/share/man/man1/hybrid-finetune.1.gz && bash -c ". /usr/share/bash-completion/completions/hybrid && complete -p hybrid"'
step 'mkdir -p /opt/any && tar -C /opt/any -xzf hybrid-trainer-*.tar.gz && ! ldd /opt/any/*/bin/hybrid | grep "not found" && /opt/any/*/bin/hybrid --version'
echo "check_fresh_machine.sh: passed in $SECONDS s"
