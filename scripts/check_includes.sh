#!/usr/bin/env bash
# Compiles each file of the program by itself, without optimisation: the other builds compile several files at once, where a
# file can lean on what another one includes. Exit code 0: each includes what it uses.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
configure=(cmake --preset cpu-debug -B build/each-file -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DHT_CUDA=OFF -DHT_TESTS=OFF -DHT_EXAMPLES=OFF)
(cd "$root" && "${configure[@]}") >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$root/build/each-file" --target hybrid >"$log" 2>&1 || { grep -A 6 'error:' "$log" >&2 || tail -n 30 "$log" >&2; exit 1; }
echo "each file includes what it uses"
