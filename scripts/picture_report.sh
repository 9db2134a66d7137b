#!/usr/bin/env bash
# Makes the README's screenshot of a run's report.
# usage: scripts/picture_report.sh RUN PICTURE.png   needs chromium and pngquant (apt install chromium pngquant)
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
[ $# -eq 2 ] || { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 64; }
report=$(realpath "$1")/report.html picture=$(realpath "$2")
[ -f "$report" ] || { echo "error: $report: does not exist" >&2; exit 66; }
for program in chromium pngquant; do
  command -v "$program" >/dev/null || { echo "error: $program is missing; apt install $program" >&2; exit 69; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,912 --user-data-dir="$scratch/profile" \
  --screenshot="$scratch/report.png" "file://$report" >"$scratch/log" 2>&1 || { tail -n 5 "$scratch/log" >&2; exit 70; }
pngquant --force --output "$picture" 32 "$scratch/report.png"
