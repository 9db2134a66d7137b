#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy. A finding fails it.
# usage: scripts/check_tidy.sh [FILE...|--changed|--all]
#   FILE...     these sources
#   --changed   the sources that differ from main, or in main from the commit before; the default
#   --all       all sources of the product; takes hours
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
usage() { sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"; }
case ${1:-} in -h | --help) usage && exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for tool in clang++ clang-tidy; do
  command -v $tool >/dev/null || { echo "error: $tool is missing; as root: apt-get install clang clang-tidy libomp-dev" >&2; exit 69; }
done

case ${1:---changed} in
  --changed)
    base=$(git merge-base origin/main HEAD 2>/dev/null || git merge-base main HEAD 2>/dev/null || git rev-parse HEAD)
    [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse --quiet --verify HEAD~1 || echo HEAD)
    listed=$(git diff --name-only --diff-filter=d "$base" -- '*.cpp')
    ;;
  --all) listed=$(git ls-files -- 'src/*.cpp' 'kernels/*.cpp' 'phases/*.cpp' 'memory/*.cpp') ;;
  --*) echo "error: unknown option $1; see --help" >&2 && exit 64 ;;
  *) listed=$(printf '%s\n' "$@") ;;
esac

# Each file by itself, with clang's options: the usual build compiles several files at once.
cmake -S . -B build-clang/tidy -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_UNITY_BUILD=OFF \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DHT_CUDA=OFF >/dev/null
files=()
while read -r file; do
  [ -n "$file" ] || continue
  if grep -qF "\"$PWD/$file\"" build-clang/tidy/compile_commands.json; then files+=("$file"); else echo "not part of this build: $file"; fi
done <<<"$listed"
[ ${#files[@]} -gt 0 ] || { echo "clang-tidy: no source to check" && exit 0; }
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet --warnings-as-errors='*' -p build-clang/tidy 2>&1 |
  { grep -v ' warnings generated\.$' || true; } ||
  { echo "error: clang-tidy found the above; see .clang-tidy for the checks" >&2; exit 1; }
echo "clang-tidy: ${#files[@]} files are clean"
