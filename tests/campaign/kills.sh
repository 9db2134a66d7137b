#!/usr/bin/env bash
# HYBRID STATE_FILE SECONDS SEED: kills runs at random times and resumes them. Each must end with the bits of the
# undisturbed run.
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/part.sh"
make_shared_files >"$state.log" 2>&1 || { cat "$state.log" >&2 && exit 1; }
cd "$shared"

# Waits until the processes of the run have ended: the launcher's group, and its ranks, which have groups of their own and
# notice the loss of another process after some seconds.
wait_for_run() {
  for ((i = 0; i < 1200; ++i)); do
    kill -0 -- "-$1" 2>/dev/null || pgrep -f -- "--run killed" >/dev/null || return 0
    sleep 0.05
  done
  found "$scenario, trial $trial: processes are left 60 s after the kill"
  pkill -KILL -f -- "--run killed" || true
}
# Starts the command in a process group of its own and sends it $1 after $2 ms.
kill_after() {
  local job code=0
  set -m
  "$hybrid" "${arguments[@]}" --resume >run.log 2>&1 &
  job=$!
  set +m
  sleep "$(printf '%d.%03d' $(($2 / 1000)) $(($2 % 1000)))"
  # Kills one process of the job: the launcher or a rank.
  local all victim=$job
  mapfile -t all < <(pgrep -g "$job" || true)
  [ ${#all[@]} -eq 0 ] || victim=${all[RANDOM % ${#all[@]}]}
  if kill "-$1" "$victim" 2>/dev/null; then count count.kills; count "count.kills_of_$scenario"; fi
  { wait "$job" || code=$?; } 2>/dev/null
  wait_for_run "$job"
  case $code in
    0 | 68 | 130 | 137 | 143) ;;
    *) found "$scenario, trial $trial: exit code $code after SIG$1: $(tail -n 3 run.log)" ;;
  esac
}

while [ $SECONDS -lt $end ]; do
  trial=${number[trial]:-0}
  RANDOM=$(((seed * 7919 + trial) % 32768))
  scenario=${scenarios[trial % ${#scenarios[@]}]}
  reference_of "$scenario"
  rm -rf killed
  command_of "$scenario" killed
  time=$(cat "$scenario.time")
  for ((k = 1 + RANDOM % 4; k > 0; --k)); do
    signal=KILL
    [ $((RANDOM % 4)) -gt 0 ] || signal=TERM
    kill_after $signal $((RANDOM % (time + 1)))
  done
  code=0
  "$hybrid" "${arguments[@]}" --resume >run.log 2>&1 || code=$?
  if [ $code -ne 0 ]; then
    found "$scenario, trial $trial: the resumed run ends with $code: $(tail -n 3 run.log)"
  elif ! cmp -s "$scenario.bits" <(bits_of killed); then
    found "$scenario, trial $trial: the resumed run has other bits"
  fi
  count count.runs
  count trial
  save_state
done
[ ${#finds[@]} -eq 0 ]
