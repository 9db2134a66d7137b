# Parts of gpu_check.sh that compare the digests of complete runs; sourced by it.

# A run through all phases, in bf16 if the phase allows it, with dropout and heads that tensor cores support.
phases=(--preset tiny --device cuda --set model.width=128 --set model.heads=2 --set model.dropout=0.1 --set mixed_precision.warmup=bf16
  --set mixed_precision.full=bf16 --set training.steps=40 --set phases.warmup_steps=8 --set phases.full_steps=4
  --set phases.skip_backward.trial_share=1 --set checkpoint.every_steps=20 --set checkpoint.keep=2)

# Trains a run, repeats it, resumes it from the middle, and trains it with CUDA graphs.
part_train() {
  local folder=$results/train_run all="" first="" other=""
  make_data || return
  digest_of once "${phases[@]}" || return
  digest_of twice "${phases[@]}" || return
  digest_of resumed "${phases[@]}" --resume || return
  digest_of graphs "${phases[@]}" --set training.cuda_graphs=true || return
  have_one_digest
}

# Compares two ranks of hybrid train with one.
part_ranks() {
  local folder=$results/ranks_run all="" first="" other="" run
  if [ -z "$dry" ] && (($(nvidia-smi -L | wc -l) < 2)); then
    echo '{"unavailable": "this machine has one CUDA device"}'
    return
  fi
  make_data || return
  for run in "1 0" "2 0" "2 1" "2 2" "2 3"; do
    digest_of "${run/ /-}" --preset tiny --device cuda --ranks "${run% *}" --set "distributed.zero=${run#* }" \
      --set gradient_accumulation.micro_batches=4 --set training.steps=40 || return
  done
  have_one_digest
}

make_data() {
  [ -n "$dry" ] || { rm -rf "$folder" && mkdir -p "$folder" && seq -f 'line %g of the text' 20000 >"$folder/text.txt"; }
  limited "$programs/hybrid" prepare "$folder/text.txt" --output "$folder/data" --tokenizer characters >&2
}

# Trains the run NAME in $folder for 40 steps. Prints its last checkpoint's digest after those of the earlier runs.
digest_of() {
  local name=$1 digest before_again=begin_run
  shift
  [ -n "$dry" ] || begin_run
  on_device "$programs/hybrid" train --data "$folder/data" --run "$folder/$name" "$@" >&2 || return
  digest=$(limited "$programs/hybrid" inspect "$folder/$name/checkpoints/step-0000000040" --digest | tail -n 1) || return
  [ -z "$dry" ] || return 0
  first=${first:-$digest}
  [ "$digest" = "$first" ] || other+=" $name"
  all+="${all:+, }\"$name\": \"$digest\""
  echo "{\"same_bits\": $([ -z "$other" ] && echo true || echo false), \"digests\": {$all}}"
}

# Each attempt of the run $name starts again, or from the middle of the first run.
begin_run() {
  rm -rf "${folder:?}/$name"
  [ "$name" != resumed ] || { cp -r "$folder/once" "$folder/resumed" && rm -r "$folder/resumed/checkpoints/step-0000000040"; }
}

have_one_digest() {
  [ -z "$other" ] || { echo "another digest than the first run's:$other" >&2 && return 1; }
}
