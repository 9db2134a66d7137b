#!/usr/bin/env bash
# HYBRID FOLDER: ranks that are killed or stopped end the job, are named, and leave a run that goes on.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
hybrid=$1 folder=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
rm -rf "$folder" && mkdir -p "$folder" && cd "$folder"
for ((i = 0; i < 4000; ++i)); do printf 'word%d and word%d\n' $((i % 97)) $((i * i % 89)); done >text.txt
"$hybrid" prepare text.txt --output data --tokenizer characters >/dev/null 2>&1

settings=(--preset tiny --data data --set training.threads=1 --set data.batch_size=2 --set gradient_accumulation.micro_batches=3 --set distributed.zero=2
  --set phases.warmup_steps=8 --set phases.full_steps=4 --set phases.trial_share=1 --set checkpoint.every_steps=5)

lose() { # SIGNAL RANK
  local signal=$1 lost=$2 run=$1-$2 job pid begin=$SECONDS
  "$hybrid" train "${settings[@]}" --run "$run" --ranks 3 --set training.steps=1000000 >/dev/null 2>"$run.log" &
  job=$!
  until ls -d "$run"/checkpoints/step-* >/dev/null 2>&1; do
    sleep 0.2
    [ $((SECONDS - begin)) -lt 40 ] || { cat "$run.log" && exit 1; }
  done
  for pid in $(pgrep -f -- "--run $run( |\$)"); do
    ! tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$lost" || kill "-$signal" "$pid"
  done
  begin=$SECONDS
  wait "$job" 2>/dev/null || true
  [ $((SECONDS - begin)) -le 60 ] || { echo "$run: took $((SECONDS - begin)) s" && exit 1; }
  ! pgrep -f -- "--run $run( |\$)" >/dev/null || { echo "$run: a rank is left" && exit 1; }
  grep -qE "^error: rank $lost \([^ ]+, process [0-9]+\) is lost: .*; the newest good checkpoint is .*, from which --resume goes on" "$run.log" || { cat "$run.log" && exit 1; }
  grep -q "\"lost_rank\":\"rank $lost " "$run/summary.json"
  echo "$signal of rank $lost: named, and all ended after $((SECONDS - begin)) s"
  local step
  step=$(ls "$run/checkpoints" | tail -n 1)
  "$hybrid" train "${settings[@]}" --run "$run" --resume --ranks 2 --set training.steps=$((10#${step#step-} + 6)) 2>"$run.resumed.log" || { cat "$run.resumed.log" && exit 1; }
}

lose KILL 1
lose STOP 2
lose KILL 0
lose STOP 0
