#!/usr/bin/env bash
# HYBRID FOLDER: runs examples/slurm/train_cpu.sbatch with stand-ins for srun and scontrol. It must requeue the job if
# that can help, and the job must resume.
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
. "$here/../../scripts/strict.sh"
hybrid=$(realpath "$1") folder=$2 script=$here/../../examples/slurm/train_cpu.sbatch
rm -rf "$folder" && mkdir -p "$folder/bin" && cd "$folder"
stand_in() { printf '#!/usr/bin/env bash\n%s\n' "$2" >"bin/$1" && chmod +x "bin/$1"; }
stand_in srun 'echo "$@" >srun.log; while [[ $1 == --* ]]; do shift; done; exec "$@"'
stand_in scontrol 'echo "$@" >>scontrol.log'
stand_in ends 'exit "$CODE"'
export PATH=$PWD/bin:$PATH SLURM_JOB_ID=4711 SLURM_NTASKS=2 SLURM_CPUS_PER_TASK=1
unset SLURM_RESTART_COUNT

ends_with() { # CODE EXPECTED-REQUEUES [RESTARTS]
  local code=0
  rm -f scontrol.log
  CODE=$1 HYBRID=ends SLURM_RESTART_COUNT=${3:-0} "$script" data run || code=$?
  [ "$code" -eq "$1" ] || { echo "code $code, want $1" && exit 1; }
  [ "$(cat scontrol.log 2>/dev/null)" = "$2" ] || { echo "code $1: scontrol got: $(cat scontrol.log 2>/dev/null), want: $2" && exit 1; }
}
ends_with 0 ""
for code in 68 130 137 139 143; do ends_with "$code" "requeue 4711"; done
for code in 1 64 65 70 71 76 78; do ends_with "$code" ""; done
ends_with 68 "requeue 4711" 19
ends_with 68 "" 20
grep -q -- '--mpi=pmix .*--kill-on-bad-exit=1 ends train --preset gpt2-124m --data data --run run --set gradient_accumulation.micro_batches=2$' srun.log
echo "requeues where a rank was lost or the job interrupted, 20 times at most"

for ((i = 0; i < 200; ++i)); do echo "line $i and line $((i * i % 89))"; done >text.txt
"$hybrid" prepare text.txt --output data --tokenizer characters >/dev/null 2>&1
train() { PRESET=tiny HYBRID=$hybrid "$script" data run --set training.threads=1 --set data.batch_size=1 --set model.layers=1 "$@" >train.log 2>&1; }
train --set training.steps=4
train --set training.steps=6 && echo "a run was begun over another" && exit 1
grep -q 'contains a run already' train.log
SLURM_RESTART_COUNT=1 train --set training.steps=6
grep -q 'SLURM_RESTART_COUNT=1: the job was restarted, as if with --resume' train.log
grep -q 'resumes after step 4' train.log
echo "a requeued job goes on by itself"
