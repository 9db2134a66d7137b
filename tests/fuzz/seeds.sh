#!/usr/bin/env bash
# Copies the seeds of a fuzz target to a folder.
# usage: tests/fuzz/seeds.sh TARGET FOLDER
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=$1 folder=$2
mkdir -p "$folder"
[ ! -d "$here/corpus/$target" ] || cp "$here/corpus/$target"/* "$folder/"
IFS=, read -r -a patterns < <(awk -v target="$target" '$1 == target && $4 != "-" { print $4 }' "$here/targets.txt") || true
for pattern in "${patterns[@]}"; do
  for file in "$here/../golden"/$pattern; do
    name=${file#"$here/../golden/"}
    cp "$file" "$folder/${name//\//_}"
  done
done
