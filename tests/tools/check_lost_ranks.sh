#!/usr/bin/env bash
# HYBRID FOLDER [TRIALS [CASE...]]: kills or disconnects a rank or the launcher. All processes must end, the lost one
# must be named, and --resume must reach the bits of an uninterrupted run. A single trial uses shorter limits, several
# trials the default ones. Links are cut only on systems that allow network namespaces.
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
. "$here/../../scripts/strict.sh"
hybrid=$(realpath "$1") folder=$2 trials=${3:-1}
shift $(($# < 3 ? $# : 3))
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(dead first_dead stopped first_stopped stuck link launcher)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
rm -rf "$folder" && mkdir -p "$folder" && cd "$folder"
for ((i = 0; i < 4000; ++i)); do printf 'word%d and word%d\n' $((i % 97)) $((i * i % 89)); done >text.txt
"$hybrid" prepare text.txt --output data --tokenizer characters >/dev/null 2>&1

settings=(--preset tiny --data data --set model.layers=2 --set model.width=64 --set training.threads=1 --set data.batch_size=2
  --set gradient_accumulation.micro_batches=6 --set phases.warmup_steps=30 --set phases.full_steps=4 --set phases.skip_backward.trial_share=1 --set training.steps=1000000
  --set checkpoint.every_steps=5 --set checkpoint.keep=1000)
limit=60
if [ "$trials" -eq 1 ]; then
  settings+=(--set distributed.collective_timeout_seconds=4)
fi
fail() { echo "$run: $*" && { tail -n 30 "$run.log" || true; } && exit 1; }
step_of() { ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*//p' | tail -n 1; }
reach() { # RUN STEP: waits until the step is saved
  local begin=$SECONDS
  until [ -d "$1/checkpoints/$(printf 'step-%010d' "$2")" ]; do
    [ $((SECONDS - begin)) -lt 60 ] || fail "does not reach step $2"
    sleep 0.1
  done
}
digest() { "$hybrid" inspect "$1/checkpoints/$(printf 'step-%010d' "$2")" --digest | tail -n 1; }
rank_processes() { pgrep -f -- "$hybrid train .*--run $run( |\$)" || true; }

start() { # COMMAND...: runs in the background as $job
  (exec "$@" train "${settings[@]}" --set distributed.zero=2 --run "$run" "${more[@]}") >/dev/null 2>"$run.log" &
  job=$!
}
wait_for_phase() { # NAME: after the first checkpoint
  local begin=$SECONDS
  until [ -n "$(step_of "$run")" ] && tail -n 1 "$run/metrics.jsonl" | grep -q "\"phase\":\"$1\""; do
    [ $((SECONDS - begin)) -lt 60 ] || fail "comes to no $1"
    sleep 0.01
  done
}
signal_rank() { # SIGNAL RANK
  local pid
  for pid in $(rank_processes); do
    ! tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qxE "(OMPI_COMM_WORLD_)?RANK=$2" || kill "-$1" "$pid"
  done
}
wait_for_end() {
  wait "$job" 2>/dev/null || true
  until [ -z "$(rank_processes)" ] && ! kill -0 "$job" 2>/dev/null; do
    [ $((SECONDS - struck)) -le $limit ] || fail "processes are left"
    sleep 0.1
  done
  took=$((SECONDS - struck))
  [ "$took" -le $limit ] || fail "took $took s"
}
log_of() { if [ "$1" -eq 0 ]; then echo "$run/log.txt"; else echo "$run/ranks/$1/log.txt"; fi; }
expect_named() { # RANK REASON: on the console, in the summary, and in the logs of the remaining ranks
  local other
  grep -qE "^error: rank $1 \([^ ]+, process [0-9]+\) is lost: $2.*; --resume continues from the newest good checkpoint, .*" "$run.log" || fail "not named"
  grep -qE "\"lost_rank\":\"rank [${3:-$1}] " "$run/summary.json" || fail "no rank $1 in summary.json"
  for other in 0 1 2; do
    [ "$other" = "$1" ] || [ "$2" = "no heartbeat" ] || grep -q "^rank $1 (" "$(log_of "$other")" || fail "rank $other does not know"
  done
}
# Two ranks with a different stage resume, and are stopped after two more checkpoints.
expect_same_bits() {
  local next code=0
  next=$(($(step_of "$run") + 10))
  more=(--resume --ranks 2)
  start "$hybrid"
  reach "$run" "$next"
  kill -TERM "$job"
  wait "$job" || code=$?
  reach reference "$next"
  [ "$(digest "$run" "$next")" = "$(digest reference "$next")" ] || fail "other bits after step $next"
}

lose() { # CASE TRIAL
  local lost phases=(predict full correct warmup)
  local phase=${phases[$((($2 - 1) % 4))]}
  run=$1-$2 more=(--ranks 3) lost=$(($2 % 2 + 1))
  case $1 in
    stuck)
      local stuck="$(dirname "$hybrid")/../tests/stuck/libstuck_product.so"
      [ -e "$stuck" ] || fail "wants $stuck of the same build"
      HT_STUCK_WHEN=$PWD/spin LD_PRELOAD=$stuck start "$hybrid"
      ;;
    link) more=() && start "$here/two_machines.sh" "$PWD/cut" "$hybrid" ;;
    first_dead) more=() && start mpirun -np 3 --oversubscribe --bind-to none "$hybrid" ;;
    *) start "$hybrid" ;;
  esac
  wait_for_phase "$phase"
  struck=$SECONDS
  case $1 in
    dead) signal_rank KILL "$lost" ;;
    first_dead) signal_rank KILL $((lost = 0)) ;;
    stopped) signal_rank STOP "$lost" ;;
    first_stopped) signal_rank STOP $((lost = 0)) ;;
    stuck) touch "spin-$lost" ;;
    link) touch cut ;; # of both ranks
    launcher) kill -KILL "$job" ;;
  esac
  wait_for_end
  case $1 in
    *dead) expect_named "$lost" "its connection ended" ;;
    *stopped) expect_named "$lost" "no heartbeat" ;;
    link) expect_named '[12]' "no heartbeat" 012 ;; # both sides report
    stuck) expect_named "$lost" "no progress" ;;
    launcher) for rank in 0 1 2; do grep -q "^the launcher (process $job) has ended" "$(log_of "$rank")" || fail "rank $rank does not tell"; done ;;
  esac
  rm -f cut spin-*
  expect_same_bits
  echo "$1 in $phase: named, all ended after $took s, the same bits after --resume"
  rm -r "$run"
}

run=reference more=() && start "$hybrid"
reach reference 400
kill -TERM "$job"
wait "$job" || true
for name in "${cases[@]}"; do
  if [ "$name" = link ] && ! unshare -n -m ip link add name first type veth peer name second 2>/dev/null; then
    echo "link: not cut here, which takes root, network namespaces and iproute2"
    continue
  fi
  for ((trial = 1; trial <= trials; ++trial)); do lose "$name" "$trial"; done
done
