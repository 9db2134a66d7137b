#!/usr/bin/env bash
# Updates the tables of docs/results/RESULTS-comparisons.md: replaces the text between "<!-- hybrid compare NAME -->"
# and "<!-- end of NAME -->" with the result of examples/compare/NAME.json in runs/NAME. Resumes unfinished comparisons,
# which may take hours. Skips comparisons without a folder in runs/, and says so.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -x build/bin/hybrid ] || { echo "error: no build/bin/hybrid; run scripts/build.sh first" >&2; exit 66; }

results=docs/results/RESULTS-comparisons.md
new=$(mktemp)
table=$(mktemp)
trap 'rm -f "$new" "$table"' EXIT
for name in $(sed -n 's/^<!-- hybrid compare \([a-z0-9_]*\) -->$/\1/p' "$results"); do
  if [ ! -d "runs/$name" ]; then
    echo "$name: skipped, no runs/$name; start it with: build/bin/hybrid compare examples/compare/$name.json --output runs/$name" >&2
    continue
  fi
  build/bin/hybrid compare "examples/compare/$name.json" --output "runs/$name" --resume --markdown > "$table"
  awk -v name="$name" -v table="$table" '
    $0 == "<!-- hybrid compare " name " -->" { print; while ((getline line < table) > 0) print line; inside = 1 }
    $0 == "<!-- end of " name " -->" { inside = 0 }
    !inside { print }
  ' "$results" > "$new"
  grep -q "^<!-- end of $name -->\$" "$new" || { echo "error: $results: no line \"<!-- end of $name -->\"" >&2; exit 65; }
  cp "$new" "$results"
  echo "$name: written"
done
