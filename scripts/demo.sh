#!/usr/bin/env bash
# Trains a language model on a text in about five minutes on two cores. After the first minute it shows the model's
# progress.
# usage: scripts/demo.sh [TEXT...]   files or folders; default: the King James Bible of Debian's package bible-kjv
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
hybrid=$root/build/bin/hybrid
train_seconds=${HT_DEMO_SECONDS:-265}  # the number of steps is chosen for this time
most_seconds=$((train_seconds + 30))    # if the machine slows down, training stops as on Ctrl-C
most_epochs=20     # a small text is memorized sooner
evaluations=5

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
  exit 0
fi
texts=()
for text in "$@"; do
  [ -e "$text" ] || { echo "error: $text: does not exist" >&2; exit 66; }
  texts+=("$(realpath "$text")")
done
title() { printf '\n== %s\n' "$*" >&2; }
# Prints one verse per line. Reads the text in the current folder, else in the package's folder.
write_verses() {
  local folder=$1
  if ! command -v bible >/dev/null; then
    (cd "$folder" && apt-get download bible-kjv bible-kjv-text libreadline8 &&
      for package in ./*.deb; do dpkg -x "$package" .; done) >/dev/null 2>&1 || return
    export PATH=$folder/usr/bin:$PATH LD_LIBRARY_PATH=$folder/lib/x86_64-linux-gnu:$folder/usr/lib/x86_64-linux-gnu
    cd "$folder/usr/lib" || return
  fi
  bible -f 'gen1:1-rev22:21' | sed -E 's/^[1-3]?[A-Za-z]+[0-9]+:[0-9]+ //'
}

title "building"
"$root/scripts/build.sh" >&2 || exit
cd "$root"

run=runs/demo
for ((i = 2; ; ++i)); do
  [ -e "$run" ] || [ -e "$run-data" ] || break
  run=runs/demo-$i
done
data=$run-data
mkdir -p runs

prompt=$'\n' validation=0.1
if [ ${#texts[@]} -eq 0 ]; then
  corpus=$(mktemp -d)
  trap 'rm -rf "$corpus"' EXIT
  mkdir "$corpus/package"
  if (write_verses "$corpus/package") >"$corpus/bible.txt" && [ "$(wc -c <"$corpus/bible.txt")" -gt 4000000 ]; then
    texts=("$corpus/bible.txt")
    prompt=$'And it came to pass'
    title "corpus: the King James Bible, one verse a line"
  else
    for folder in c++/12 eigen3 boost/{container,json}; do
      [ -d "/usr/include/$folder" ] && texts+=("/usr/include/$folder")
    done
    prompt=$'template <typename T>\nclass '
    title "corpus: the C++ headers in ${texts[*]}, since Debian's package bible-kjv cannot be had"
  fi
  validation=0.02
else
  title "corpus: ${texts[*]}"
fi
"$hybrid" prepare "${texts[@]}" --output "$data" --tokenizer bpe --vocab-size 4096 --validation "$validation" >&2

title "measuring this machine"
bench() { "$hybrid" bench --preset small --batch 8 --sequence 256 --optimizer muon --json "$@"; }
measured=$(bench --precision auto --steps 8)
evaluated=$(bench --precision fp32 --steps 2)  # evaluations use the master weights
number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" <<<"$2" | head -n 1; }
data_info=$(cat "$data/data.json")
steps=$(awk -v step="$(number step_seconds "$measured")" -v forward="$(number forward_only_seconds "$evaluated")" \
  -v train="$(number train_tokens "$data_info")" -v validation="$(number validation_tokens "$data_info")" \
  -v budget=$train_seconds -v times=$evaluations -v epochs=$most_epochs '
  BEGIN {
    steps = (budget - times * validation / 2048 * forward) / step
    if (steps > epochs * train / 2048) steps = epochs * train / 2048
    print int(steps < 60 ? 60 : steps)
  }')
echo "$steps steps of 2,048 tokens" >&2

# Trains for at most this number of seconds, then stops with a checkpoint, as on Ctrl-C.
train_for() {
  local seconds=$1 code=0
  shift
  timeout --foreground --signal=INT "$seconds" "$hybrid" train --run "$run" "$@" || code=$?
  [ $code -eq 0 ] || [ $code -eq 124 ] || exit $code
  return $code
}
write_sample() { "$hybrid" sample "$run" --prompt "$prompt" --tokens "$1" --temperature 0.8 --top-k 100 --seed 1; }

title "training, for the first minute"
first=$((most_seconds / 5))
if ! train_for $first --preset small --data "$data" --set training.steps="$steps" \
  --set training.evaluate_every_steps=$((steps / evaluations)) --set schedule.warmup_steps=$((steps / 20)) \
  --set phases.warmup_steps=$((steps / 10)); then
  title "what it writes after $first seconds"
  write_sample 60 || echo "(there is no step yet)" >&2
  echo
  title "training goes on"
  train_for $((most_seconds - first)) --resume ||
    echo "stopped after $most_seconds s: this machine got slower than it was measured to be" >&2
fi

title "what it came to"
"$hybrid" inspect "$run"
sed -n 's/.*"predictions": *{\([^}]*\)}.*/\1/p' "$run/summary.json" | tr -d '"' | sed 's/:/ /g; s/,/, /g; s/^/predictions           /'
title "a sample"
write_sample 200
echo
title "see also"
printf '%s\n' "  $run/report.html    loss, phases, speed and memory; open it in a browser" \
  "  $run/summary.json   the same figures for programs" \
  "  build/bin/hybrid sample $run --prompt TEXT --tokens 200" >&2
