#!/usr/bin/env bash
# Compiles each CUDA kernel for sm_80 and sm_90, and prints its registers, spilled bytes, static shared memory and
# number of global loads. Needs nvcc but no GPU; takes about a minute on two cores. Exit code 0: no kernel spills
# registers or exceeds the static shared memory that kernels/backend/launch.cuh allows; 1: some do; 69: nvcc is missing.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) ||
  { echo "error: check_kernels.sh finds no nvcc; install the CUDA toolkit 13.0 or put its bin folder on PATH" >&2; exit 69; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake -DFOLDER="$folder" -P kernels/declare_backends.cmake
# Prints the ptxas report of one file, and its PTX.
compile() {
  local stem=$folder/$2-$(basename "$1" .cu) flags=(-std=c++20 -O3 -Iinclude -I. -I"$folder" --expt-relaxed-constexpr)
  "$nvcc" "${flags[@]}" -arch="$2" -ptx -o "$stem.ptx" "$1"
  "$(dirname "$nvcc")/ptxas" -v -arch="$2" -o /dev/null "$stem.ptx" 2>"$stem.log"
}
export -f compile
export folder nvcc
printf '%s\n' kernels/*/*.cu | xargs -P "$(nproc)" -I{} bash -euc 'compile "{}" sm_80; compile "{}" sm_90'

# One line per kernel: architecture, mangled name, registers, spilled bytes.
for log in "$folder"/*.log; do
  awk -v ptx="${log%.log}.ptx" -v sm="$(basename "$log" | cut -d- -f1)" '
    /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
    /bytes spill stores/ { spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers[name] = substr($0, RSTART + 5, RLENGTH - 5); spills[name] = spilled
      shared[name] = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) : 0
    }
    END {
      while ((getline line < ptx) > 0) {
        if (match(line, /\.entry [A-Za-z0-9_$]+/)) entry = substr(line, RSTART + 7, RLENGTH - 7)
        if (line ~ /ld\.global/) ++loads[entry]
      }
      for (name in registers) print sm, name, registers[name], spills[name], shared[name], loads[name] + 0
    }' "$log"
done | c++filt | sed -E 's/hybrid_trainer::(kernels::cuda::)?//g; s/\(anonymous namespace\):://g; s/\([A-Za-z_: ]+\)([0-9])/\1/g; s/\(.*\) ([0-9]+ [0-9]+ [0-9]+ [0-9]+)$/ \1/; s/ void / /' |
  sort -k2 >"$folder/all"

printf '%-7s %9s %8s %7s %6s  %s\n' device registers spilled static loads kernel
awk '{ name = $2; for (i = 3; i <= NF - 4; ++i) name = name " " $i
       printf "%-7s %9d %8d %7d %6d  %s\n", $1, $(NF - 3), $(NF - 2), $(NF - 1), $NF, name }' "$folder/all"
spilling=$(awk '$(NF - 2) > 0' "$folder/all" | wc -l) large=$(awk '$(NF - 1) > 16384' "$folder/all" | wc -l)
echo "$(wc -l <"$folder/all") kernels; $spilling spill registers to memory; $large have more than 16 KiB of static shared memory"
[ $((spilling + large)) -eq 0 ] || exit 1
