# Sourced by the parts that are scripts: PART.sh HYBRID STATE_FILE SECONDS SEED. Keeps the state in lines "KEY VALUE" and
# "find TEXT", as tests/campaign/campaign.cpp does.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
golden=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../golden")
hybrid=$(realpath -m "$1") state=$(realpath -m "$2") seconds=$3 seed=$4
end=$((SECONDS + seconds))
declare -A number=()
finds=()
if [ -f "$state" ]; then
  while read -r key value; do
    if [ "$key" = find ]; then finds+=("$value"); else number[$key]=$value; fi
  done <"$state"
fi
count() { number[$1]=$((${number[$1]:-0} + ${2:-1})); }
found() {
  echo "found: $*" >&2
  finds+=("$(tr '\n' ';' <<<"$*")")
}
save_state() {
  {
    for key in "${!number[@]}"; do echo "$key ${number[$key]}"; done | sort
    for text in "${finds[@]}"; do echo "find $text"; done
  } >"$state.next"
  mv "$state.next" "$state"
}

# Files that trials share, made once.
shared=${HT_CAMPAIGN_FILES:-$state.files}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
small=(--set training.threads=1 --set checkpoint.every_steps=3 --set checkpoint.keep=2 --set phases.warmup_steps=4
  --set phases.full_steps=3 --set phases.skip_backward.trial_share=1)
make_shared_files() {
  mkdir -p "$shared" && cd "$shared"
  [ ! -f ready ] || return 0
  for ((i = 0; i < 400; ++i)); do printf 'Line %d: the quick brown fox jumps over line %d.\n' $((i % 97)) $((i * i % 89)); done >text.txt
  for ((i = 0; i < 24; ++i)); do printf '{"prompt": "Line %d", "completion": " the fox %d"}\n' $i $((i * i % 17)); done >rows.jsonl
  for ((i = 0; i < 24; ++i)); do printf '{"prompt": "Line %d", "chosen": " fox", "rejected": " line"}\n' $i; done >pairs.jsonl
  for ((i = 0; i < 24; ++i)); do printf '{"text": "Line %d", "label": "%s"}\n' $i "$([ $((i % 2)) -eq 0 ] && echo even || echo odd)"; done >labels.jsonl
  mkdir -p pictures/first pictures/second
  for name in rgb.png grey.png grey16.png full_color.jpg; do
    cp "$golden/images/$name" pictures/first
    cp "$golden/images/$name" "pictures/second/other_$name"
  done
  "$hybrid" prepare text.txt --output data --tokenizer bpe --vocab-size 280
  "$hybrid" train "${tiny[@]}" --data data --run base_run --set training.steps=3
  "$hybrid" export base_run --output base
  touch ready
}
tiny=(--preset tiny --set model.layers=1 --set model.heads=2 --set model.width=16 --set model.context=32
  --set data.batch_size=4 --set data.sequence_length=16)
scenarios=(train asynchronous lora dpo zero qlora classify pictures)
# Sets `arguments` to the command of a scenario that writes the run $2.
command_of() {
  local tuned=(finetune --model base --run "$2" --epochs 2 "${small[@]}")
  case $1 in
    train) arguments=(train "${tiny[@]}" "${small[@]}" --data data --run "$2" --set training.steps=24) ;;
    asynchronous) arguments=(train "${tiny[@]}" "${small[@]}" --data data --run "$2" --set training.steps=24
      --set phases.method=asynchronous_optimizer --set phases.asynchronous_optimizer.exact_state=file --set "memory.folder=$shared") ;;
    lora) arguments=("${tuned[@]}" --data rows.jsonl --method lora) ;;
    qlora) arguments=("${tuned[@]}" --data rows.jsonl --method qlora) ;;
    classify) arguments=("${tuned[@]}" --data labels.jsonl --task classify) ;;
    pictures) arguments=(finetune --model "$golden/vit_a" --run "$2" --epochs 4 "${small[@]}" --data pictures) ;;
    dpo) arguments=("${tuned[@]}" --data pairs.jsonl --objective dpo) ;;
    zero) arguments=(train "${tiny[@]}" "${small[@]}" --data data --run "$2" --set training.steps=24 --ranks 2
      --set gradient_accumulation.micro_batches=2 --set data.batch_size=2 --set "distributed.zero=$((1 + ${trial:-0} % 3))") ;;
  esac
}
# Prints the bits of a finished run: its last step, the digest of its checkpoint and its losses.
bits_of() {
  local last
  last=$(ls "$1/checkpoints" | grep '^step-' | tail -n 1)
  echo "$last"
  "$hybrid" inspect "$1/checkpoints/$last" --digest | tail -n 1
  grep -o '"step":[0-9]*\|"loss":[^,}]*' "$1/metrics.jsonl" | tr '\n' ' '
}
# Trains the undisturbed run of a scenario once, and notes its bits and its time in ms.
reference_of() {
  [ ! -f "$1.bits" ] || return 0
  local begin
  command_of "$1" "$1.reference"
  begin=$(date +%s%N)
  "$hybrid" "${arguments[@]}" >"$1.log" 2>&1
  echo $((($(date +%s%N) - begin) / 1000000)) >"$1.time"
  bits_of "$1.reference" >"$1.bits"
}
