#!/usr/bin/env bash
# Builds the optimized command-line tool, build/bin/hybrid. Installs missing packages first.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh" || exit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
(cd "$root" && cmake --preset cpu-release) >"$log" 2>&1 || { cat "$log" >&2; echo "error: cmake could not configure the build" >&2; exit 1; }
cmake --build "$root/build" --target hybrid
echo "built: build/bin/hybrid"
