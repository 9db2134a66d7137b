#!/usr/bin/env bash
# HYBRID FOLDER: runs over ranks, started by the tool and by mpirun, give the bits of one rank and resume with a
# different number of ranks.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
hybrid=$(realpath "$1") folder=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
rm -rf "$folder" && mkdir -p "$folder" && cd "$folder"
for ((i = 0; i < 4000; ++i)); do printf 'word%d and word%d\n' $((i % 97)) $((i * i % 89)); done >text.txt
"$hybrid" prepare text.txt --output data --tokenizer characters >/dev/null 2>&1

small=(--preset tiny --set model.layers=2 --set model.width=64 --set data.sequence_length=32)
train() { # RUN RANKS ...
  local run=$1 ranks=$2
  shift 2
  "$hybrid" train "${small[@]}" --data data --run "$run" --ranks "$ranks" --set training.threads=1 --set training.steps=24 --set data.batch_size=2 \
    --set gradient_accumulation.micro_batches=4 --set phases.warmup_steps=8 --set phases.full_steps=4 --set phases.skip_backward.trial_share=1 \
    --set checkpoint.every_steps=8 --set checkpoint.keep=3 "$@" 2>"$run.log" || { cat "$run.log" && exit 1; }
}
validation_loss() { grep -o '"final_validation_loss":[^,]*' "$1/summary.json"; }
digest() { "$hybrid" inspect "$1/checkpoints/step-0000000024" --digest | tail -n 1 && validation_loss "$1"; }
same() {
  [ "$(digest "$1")" = "$want" ] || { echo "$1: other bits than one rank" && exit 1; }
  echo "$1: the bits of one rank"
}

# Combines each number of ranks with each stage, directly or after a resume.
train muon-1 1 --set optimizer.name=muon
want=$(digest muon-1)
train muon-2 2 --set optimizer.name=muon --set distributed.zero=3
same muon-2
train muon-4 4 --set optimizer.name=muon --set distributed.zero=1
same muon-4
train adamw-1 1 --set optimizer.name=adamw
want=$(digest adamw-1)
train adamw-2 2 --set optimizer.name=adamw
same adamw-2
train adamw-3 3 --set optimizer.name=adamw --set distributed.zero=2
same adamw-3
grep -q '"distributed":{"ranks":3,"zero":2,"backend":"sockets"' adamw-3/summary.json

# Checkpoints of three ranks are read like those of one.
read_out() {
  "$hybrid" export "$1" --output "$1-exported" >/dev/null 2>&1
  "$hybrid" eval "$1" --json >"$1-loss" 2>/dev/null
}
read_out adamw-1
read_out adamw-3
[ -f adamw-3/checkpoints/step-0000000024/rank-00002.safetensors ]
cmp adamw-1-exported/model.safetensors adamw-3-exported/model.safetensors
cmp adamw-1-loss adamw-3-loss && grep -q loss adamw-3-loss
echo "adamw-3: evaluated and exported as that of one"

for next in "2 1" "4 3" "3 0" "1 2" "4 2" "3 1"; do
  read -r ranks zero <<<"$next"
  rm -r adamw-3/checkpoints/step-0000000024
  train adamw-3 "$ranks" --set optimizer.name=adamw --set "distributed.zero=$zero" --resume
  same adamw-3
done

grep -q '"command":"[^"]*hybrid train .* --ranks 3 ' adamw-3/summary.json

# Fine-tuning: adapters on frozen weights, which each rank has completely, and full fine-tuning with sharded weights.
"$hybrid" export muon-1 --output base >/dev/null 2>&1
cp data/tokenizer.json base
for ((i = 0; i < 40; ++i)); do printf '{"prompt": "word%d ", "completion": "and word%d"}\n' $i $((i * i % 89)); done >examples.jsonl
finetune() { # RUN RANKS ...
  local run=$1 ranks=$2
  shift 2
  "$hybrid" finetune --run "$run" --ranks "$ranks" "$@" 2>"$run.log" || { cat "$run.log" && exit 1; }
}
finetune_anew() { # RUN RANKS ...
  finetune "$@" --model base --data examples.jsonl --epochs 5 --set training.threads=1 --set data.batch_size=1 \
    --set data.sequence_length=48 --set gradient_accumulation.micro_batches=4 --set optimizer.learning_rate=1e-3 \
    --set phases.warmup_steps=4 --set phases.full_steps=4 --set phases.skip_backward.trial_share=1 --set checkpoint.every_steps=10 --set checkpoint.keep=9
}
for method in full lora qlora; do
  finetune_anew "$method-1" 1 --method "$method"
  last=$(ls "$method-1/checkpoints" | tail -n 1)
  want=$("$hybrid" inspect "$method-1/checkpoints/$last" --digest | tail -n 1)
  same_tuned() { [ "$("$hybrid" inspect "$1/checkpoints/$last" --digest | tail -n 1)" = "$want" ] || { echo "$1: other bits than one rank" && exit 1; }; }
  finetune_anew "$method-2" 2 --method "$method" --set distributed.zero=3
  same_tuned "$method-2"
  rm -r "$method-2/checkpoints/$last"
  finetune "$method-2" 3 --resume --set distributed.zero=1
  same_tuned "$method-2"
  echo "$method: fine-tuned over ranks to the bits of one"
done

# If the given micro-batches exceed a budget, all ranks halve them at the same step, with the bits of a single rank that
# starts with the smaller ones.
# In fp32: with bf16 activations, the sums of more micro-batches need more memory than larger ones save.
batches=(--set training.threads=1 --set training.steps=12 --set phases.max_predict_steps=0 --set mixed_precision.warmup=fp32
  --set mixed_precision.full=fp32)
peak() { # BATCH_SIZE MICRO_BATCHES
  "$hybrid" plan "${small[@]}" --devices 2 --zero 2 "${batches[@]}" --set "model.vocabulary=$(grep -o '"vocabulary_size":[0-9]*' data/data.json | cut -d: -f2)" \
    --set "data.batch_size=$1" --set "gradient_accumulation.micro_batches=$2" --json | grep -o '"device_peak_bytes":[0-9]*' | cut -d: -f2
}
train halves-1 1 "${batches[@]}" --set data.batch_size=4 --set gradient_accumulation.micro_batches=8
train halves-2 2 "${batches[@]}" --set data.batch_size=8 --set gradient_accumulation.micro_batches=4 --set distributed.zero=2 --set "memory.device_budget=$((($(peak 8 4) + $(peak 4 8)) / 2))"
for log in halves-2.log halves-2/ranks/1/log.txt; do grep -q 'memory is too small for micro-batches of 8 examples in warmup; reduced to 4' "$log"; done
[ "$("$hybrid" inspect halves-1/checkpoints/step-0000000012 --digest | tail -n 1)" = "$("$hybrid" inspect halves-2/checkpoints/step-0000000012 --digest | tail -n 1)" ] || { echo "halved micro-batches: other bits" && exit 1; }
echo "ranks halve their micro-batches alike"

# Errors are reported in one line with an exit code, and nothing is left of the run.
refused() { # CODE MESSAGE COMMAND...
  local want=$1 message=$2 code=0
  shift 2
  "$@" >refused.log 2>&1 || code=$?
  if [ "$code" -ne "$want" ] || ! grep -q "^error: .*$message" refused.log || [ "$(grep -c '^error:' refused.log)" -ne 1 ]; then
    echo "code $code, want $want and: $message" && cat refused.log && exit 1
  fi
  [ ! -e refused ] || { echo "a folder is left" && ls -A refused && exit 1; }
  echo "refused by one line: $message"
}
by_mpirun=(mpirun --oversubscribe --bind-to none)
tiny=(train --preset tiny --set gradient_accumulation.micro_batches=2)
here=("${tiny[@]}" --data data --run refused)
refused 78 'gradient_accumulation.micro_batches: got 2 for 3 ranks' "$hybrid" "${here[@]}" --ranks 3
refused 78 'gradient_accumulation.micro_batches: got 2 for 99999 ranks' timeout 20 "$hybrid" "${here[@]}" --ranks 99999
refused 64 '--ranks: got 2, but this process is one of 3 ranks that mpirun started' "${by_mpirun[@]}" -np 3 "$hybrid" "${here[@]}" --ranks 2
refused 78 'training.stepz' "${by_mpirun[@]}" -np 2 "$hybrid" "${here[@]}" --set training.stepz=3
refused 66 'nowhere: does not exist' "${by_mpirun[@]}" -np 2 "$hybrid" "${tiny[@]}" --data nowhere --run refused
refused 64 'rank 1 (.*) differs from rank 0 (.*) in the configuration' "${by_mpirun[@]}" -np 1 "$hybrid" "${here[@]}" : -np 1 "$hybrid" "${here[@]}" --set training.seed=5
refused 64 'rank 1 (.*) in --resume' "${by_mpirun[@]}" -np 1 "$hybrid" "${here[@]}" : -np 1 "$hybrid" "${here[@]}" --resume
refused 64 'is not a shared folder: rank 1 on ' "${by_mpirun[@]}" -np 1 "$hybrid" "${here[@]}" : -np 1 "$hybrid" "${tiny[@]}" --data data --run elsewhere
cp -r base base-of-others && printf '\1' | dd of=base-of-others/model.safetensors bs=1 seek=$(($(stat -c %s base/model.safetensors) - 2)) conv=notrunc status=none
tune=(finetune --data examples.jsonl --run refused --method lora --set data.batch_size=1 --set gradient_accumulation.micro_batches=4)
refused 64 'rank 1 (.*) in the initial model' "${by_mpirun[@]}" -np 1 "$hybrid" "${tune[@]}" --model base : -np 1 "$hybrid" "${tune[@]}" --model base-of-others
refused 78 'gradient_accumulation.micro_batches: got 1 for 2 ranks.*data.batch_size=1' "$hybrid" finetune --data examples.jsonl --run refused --model base --ranks 2 --batch-size 2
cp -r data other && printf '\1' | dd of=other/train_000000.bin bs=1 seek=20000 conv=notrunc status=none
refused 64 "rank 1 (.*) in the data's checksum" "${by_mpirun[@]}" -np 1 "$hybrid" "${here[@]}" : -np 1 "$hybrid" "${tiny[@]}" --data other --run refused
mkdir -p build/bin && cp "$hybrid" build/bin && ln -s "$(dirname "$hybrid")/../lib" build/lib && printf x >>build/bin/hybrid
refused 64 'rank 1 (.*) in the checksum of its program' "${by_mpirun[@]}" -np 1 "$hybrid" "${here[@]}" : -np 1 build/bin/hybrid "${here[@]}"
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 refused 64 'mpirun started this process as rank 0 of 2, but Open MPI reports rank 0 of 1' "$hybrid" "${here[@]}"
OMPI_COMM_WORLD_RANK=0 refused 64 'OMPI_COMM_WORLD_SIZE is not set' "$hybrid" "${here[@]}"
RANK=1 WORLD_SIZE=2 refused 64 'the launcher that set RANK and WORLD_SIZE started this process without PMIx.*: mpirun -np 2 ' "$hybrid" "${here[@]}"
RANK=0 WORLD_SIZE=2 refused 64 'two launchers disagree: mpirun says rank 1 of 2' "${by_mpirun[@]}" -np 2 "$hybrid" "${here[@]}"

# An error of a single rank is also recorded in the run, and replaces its earlier end.
rm -r adamw-2/ranks/1 && touch adamw-2/ranks/1
code=0
"$hybrid" train --resume --run adamw-2 --ranks 2 --set training.steps=25 >gave_up.log 2>&1 || code=$?
[ "$code" -eq 68 ] || { echo "code $code where a rank gives up" && cat gave_up.log && exit 1; }
grep -q '^rank 1 (.*) gave up: .*ranks/1.*; --resume continues from the newest good checkpoint, adamw-2/checkpoints/step-0000000024' adamw-2/log.txt
grep -q '"lost_rank":"rank 1 .* gave up: ' adamw-2/summary.json
echo "a rank that gives up says why in the run"

# On different CPUs, all ranks use the common instruction set, with the bits of a single rank limited to it.
over_mixed() { # RUN FIRST_ISA SECOND_ISA ...
  one=("$hybrid" train "${small[@]}" --data data --run "$1" --set training.threads=1 --set training.steps=12 --set data.batch_size=2 --set gradient_accumulation.micro_batches=4 "${@:4}")
  "${by_mpirun[@]}" -np 1 -x "HYBRID_MAX_ISA=$2" "${one[@]}" : -np 1 -x "HYBRID_MAX_ISA=$3" "${one[@]}" 2>"$1.log" || { cat "$1.log" && exit 1; }
}
over_mixed like avx2 avx2
over_mixed mixed avx512 avx2
[ "$("$hybrid" inspect like/checkpoints/step-0000000012 --digest | tail -n 1)" = "$("$hybrid" inspect mixed/checkpoints/step-0000000012 --digest | tail -n 1)" ] || { echo "mixed processors: other bits" && exit 1; }
if [[ $("$hybrid" doctor) == *avx512* ]]; then grep -q 'all ranks use the common instruction set (avx2): rank 0 has avx512.*, rank 1 avx2' mixed.log; fi
echo "ranks on processors that differ have the bits of the lesser one"

over_mixed three avx2 avx2 --set distributed.zero=3
[ "$("$hybrid" inspect like/checkpoints/step-0000000012 --digest | tail -n 1)" = "$("$hybrid" inspect three/checkpoints/step-0000000012 --digest | tail -n 1)" ] || { echo "by Open MPI: other bits" && exit 1; }
grep -q '"backend":"mpi"' three/summary.json
echo "ranks that mpirun started have the same bits at each stage"

# Ranks of one machine and their launcher listen only on the loopback address.
listens_elsewhere() { # PID...: sockets that listen on another address
  local pid inodes
  inodes=$(for pid in "$@"; do ls -l "/proc/$pid/fd" 2>/dev/null; done | sed -n 's/.*socket:\[\([0-9]*\)\]/\1/p' | sort -u)
  for table in tcp tcp6; do
    awk '$4 == "0A" && $2 !~ /^(0100007F|0{24}01000000):/ { print $10, $2 }' "/proc/net/$table" | grep -wFf <(printf '%s\n' "${inodes:-none}") || true
  done
}
"$hybrid" train "${small[@]}" --data data --run listens --ranks 2 --set training.threads=1 --set training.steps=100000 --set data.batch_size=2 \
  --set gradient_accumulation.micro_batches=2 >listens.log 2>&1 &
job=$!
for ((i = 0; i < 600; ++i)); do
  mapfile -t pids < <(echo "$job" && pgrep -P "$job" || true)
  elsewhere=$(listens_elsewhere "${pids[@]}")
  [ -z "$elsewhere" ] || { kill "$job" && echo "listens elsewhere: $elsewhere" && exit 1; }
  [ ! -s listens/metrics.jsonl ] || break
  sleep 0.05
done
kill -TERM "$job" && wait "$job" || [ $? -eq 130 ]
[ -s listens/metrics.jsonl ] || { cat listens.log && exit 1; }
echo "ranks listen on this machine alone"

"$hybrid" doctor --ranks 2 --json 2>/dev/null >doctor.json
grep -qE '"ranks":2,"hosts":1,"backend":"sockets","link_bytes_per_second":[1-9]' doctor.json || { cat doctor.json && exit 1; }
echo "the link between ranks is measured"
