#!/usr/bin/env bash
# Parses each source file separately. Other builds compile several files together, so a missing include can go
# unnoticed. Skips files that a finished build has compiled alone, or first in their group. A header is checked by its
# own source, which includes it first; a public header without one is parsed alone, twice in one file.
# Exit code 0: each file includes everything that it uses.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
log=$(mktemp)
alone=$(mktemp)
trap 'rm -f "$log" "$alone"' EXIT
if [ "$(ninja -C "$root/build" -n hybrid 2>/dev/null | tail -n 1 || true)" = "ninja: no work to do." ]; then
  ninja -C "$root/build" -t commands hybrid | sed -nE 's/.* -c ([^ ]+\.(cpp|cxx))$/\1/p' | while IFS= read -r source; do
    case $source in
      */unity_*) sed -n 's/^#include "\(.*\)"$/\1/p' "$source" | head -n 1 ;;
      *) echo "$source" ;;
    esac
  done >"$alone"
fi
folder=$root/build/each-file
configure=(cmake --preset cpu-debug -B "$folder" -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DHT_CUDA=OFF -DHT_TESTS=OFF -DHT_EXAMPLES=OFF -DHT_CCACHE=OFF)
(cd "$root" && "${configure[@]}") >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

commands() { ninja -C "$folder" -t commands hybrid | grep "$1"; }
cd "$folder"
mapfile -t headers < <(commands 'cmake_pch.hxx.cxx$' | sed 's/.* -o \([^ ]*\) .*/\1/')
ninja "${headers[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
# Only parses them and writes nothing.
commands ' -c [^ ]*\.cpp$' | awk -v list="$alone" 'BEGIN { while ((getline file < list) > 0) skip[file] = 1 } !($NF in skip)' |
  sed 's/ -MD -MT [^ ]* -MF [^ ]* -o [^ ]*/ -fsyntax-only/' |
  xargs -d '\n' -P "$(nproc)" -I{} sh -c '{}' >"$log" 2>&1 || { grep -A 6 'error:' "$log" >&2 || tail -n 30 "$log" >&2; exit 1; }

sources=$(cd "$root" && find src kernels phases memory -name '*.cpp' -printf '%f\n' | sed 's/\.cpp$//' | tr '\n' ' ')
cd "$root/include"
find . -name '*.h' | sed 's#^\./##' | awk -v sources="$sources" '
  BEGIN { split(sources, names, " "); for (i in names) has[names[i]] = 1 }
  { stem = $0; sub(/.*\//, "", stem); sub(/\.h$/, "", stem); if (!(stem in has)) print }' |
  xargs -P "$(nproc)" -I{} sh -c 'printf "#include \"%s\"\n#include \"%s\"\n" {} {} |
    ${CXX:-c++} -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I. -x c++ -' >"$log" 2>&1 ||
  { grep -A 6 'error:' "$log" >&2 || tail -n 30 "$log" >&2; exit 1; }
echo "each file includes what it uses"
