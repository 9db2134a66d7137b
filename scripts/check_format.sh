#!/usr/bin/env bash
# Checks that every source file is formatted by clang-format 14 (Debian 12). With --fix, formats the files.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(--dry-run --Werror)
case ${1:-} in
  "") ;;
  --fix) mode=(-i) ;;
  *) echo "usage: scripts/check_format.sh [--fix]" >&2 && exit 64 ;;
esac
command -v clang-format >/dev/null || { echo "error: clang-format is missing; as root: apt-get install clang-format" >&2; exit 69; }
listed=$(git ls-files -- '*.h' '*.cpp' '*.cu' '*.cuh') ||
  { echo "error: git does not list the files of $PWD, as it says above; a clone is needed" >&2; exit 66; }
mapfile -t files <<<"$listed"
clang-format "${mode[@]}" "${files[@]}" ||
  { echo "error: the files above are not formatted; scripts/check_format.sh --fix does it" >&2; exit 1; }
echo "formatted: ${#files[@]} files"
