#!/usr/bin/env bash
# HYBRID STATE_FILE SECONDS SEED: fails the n-th call on a file, the n-th allocation and the n-th thread of a run, of a
# resume and of exports. Each ends with a documented exit code and a message, and the run resumes to the same bits.
. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/part.sh"
make_shared_files >"$state.log" 2>&1 || { cat "$state.log" >&2 && exit 1; }
cc -shared -fPIC -O1 -o "$shared/failing_calls.so" "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/failing_calls.c" -ldl
cd "$shared"
trial=0
reference_of train

with_fault() { # KIND ERROR AT COMMAND...
  local kind=$1 error=$2 at=$3
  shift 3
  env LD_PRELOAD="$shared/failing_calls.so" HT_FAIL_KIND="$kind" HT_FAIL_ERROR="$error" HT_FAIL_AT="$at" HT_FAIL_COUNT="$shared/calls" "$@"
}
begin_action() { # prepares the files of an action and sets `arguments`
  rm -rf failed exported exported.gguf made
  command_of train failed
  case $action in
    train) ;;
    resume)
      cp -r train.reference failed
      rm -r failed/checkpoints/step-0000000024 ;;
    export) arguments=(export train.reference --output exported) ;;
    gguf) arguments=(export train.reference --output exported.gguf) ;;
    prepare) arguments=(prepare text.txt --output made --tokenizer bpe --vocab-size 280) ;;
  esac
  [ "$action" != resume ] || arguments+=(--resume)
}
check_end() { # CODE
  # OpenMP's library ends the process itself.
  if [ "$kind $1" = "memory 1" ] && grep -q '^libgomp: Out of memory' failed.log; then
    count count.ends_by_libgomp
    return
  fi
  case $1 in
    0 | 65 | 66 | 69 | 71 | 73 | 74) ;;
    *) found "$what: exit code $1: $(tail -n 3 failed.log)"; return ;;
  esac
  [ "$1" -eq 0 ] || grep -q '^error' failed.log || found "$what: exit code $1 without a message"
  case $action in
    train | resume)
      local again=0
      [ "$action" = resume ] || arguments+=(--resume)
      "$hybrid" "${arguments[@]}" >again.log 2>&1 || again=$?
      if [ $again -ne 0 ]; then
        found "$what: the resumed run ends with $again: $(tail -n 3 again.log)"
      elif [ "$(bits_of failed | head -n 2)" != "$(head -n 2 train.bits)" ]; then
        found "$what: the resumed run has other bits"
      fi ;;
    # A checkpoint that cannot be read counts as damaged: the one before it is exported, with a warning.
    export) [ "$1" -ne 0 ] || grep -q 'is damaged .*; using' failed.log || cmp -s exported/model.safetensors export.reference || found "$what: another file" ;;
    gguf) [ "$1" -ne 0 ] || grep -q 'is damaged .*; using' failed.log || cmp -s exported.gguf gguf.reference || found "$what: another file" ;;
    prepare) [ "$1" -ne 0 ] || diff -r made data >/dev/null || found "$what: other files" ;;
  esac
}

[ -f gguf.reference ] || {
  "$hybrid" export train.reference --output exported.gguf >/dev/null 2>&1 && mv exported.gguf gguf.reference
  "$hybrid" export train.reference --output whole >/dev/null 2>&1 && cp whole/model.safetensors export.reference
}
actions=(train resume export gguf prepare)
kinds=("file 28" "file 5" "file 24" "file -1" "thread 11" "memory 12")
most_calls_of_memory=400 # spread over all allocations
for ((at = ${number[position]:-0}; SECONDS < end; ++at)); do
  pair=$((at % (${#actions[@]} * ${#kinds[@]}))) index=$((at / (${#actions[@]} * ${#kinds[@]})))
  action=${actions[pair % ${#actions[@]}]}
  read -r kind error <<<"${kinds[pair / ${#actions[@]}]}"
  if [ ! -f "calls.$action.$kind" ]; then
    begin_action
    with_fault "$kind" 0 -1 "$hybrid" "${arguments[@]}" >failed.log 2>&1
    mv calls "calls.$action.$kind"
  fi
  all=$(cat "calls.$action.$kind")
  if [ "$kind" = memory ]; then index=$((index * (1 + all / most_calls_of_memory) + (seed + index) % (1 + all / most_calls_of_memory))); fi
  number[position]=$((at + 1))
  [ "$index" -lt "$all" ] || continue
  what="$action, $kind call $index of $all fails with $error"
  begin_action
  code=0
  with_fault "$kind" "$error" "$index" timeout 60 "$hybrid" "${arguments[@]}" >failed.log 2>&1 || code=$?
  check_end $code
  count count.errors
  count "count.errors_of_$action"
  save_state
done
save_state
[ ${#finds[@]} -eq 0 ]
