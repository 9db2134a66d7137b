#!/usr/bin/env bash
# Builds the fuzz targets with their seeds and dictionaries, for OSS-Fuzz or by hand. See docs/RELIABILITY.md.
# usage: tests/fuzz/build.sh [--coverage]
#   --coverage  also counts lines, for tests/fuzz/coverage.sh, in build/fuzz-coverage
# Prints the folder of the programs, by default build/fuzz/out.
# By hand it uses clang 16 of Debian 12 with the sanitizers for addresses and undefined behavior. The variables of
# OSS-Fuzz take precedence: CC, CXX, CXXFLAGS, LIB_FUZZING_ENGINE, OUT (programs) and WORK (objects). There is no C code.
# Needs clang-16, libclang-rt-16-dev and libomp-16-dev.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/strict.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=fuzz
case ${1:-} in
  "") ;;
  --coverage) folder=fuzz-coverage ;;
  -h | --help) sed -n '2,/^[^#]/s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "error: \"$1\" is no option; see --help" >&2; exit 64 ;;
esac

export CC=${CC:-clang-16} CXX=${CXX:-clang++-16}
command -v "$CXX" >/dev/null || { echo "error: $CXX is missing; as root: apt-get install clang-16 libclang-rt-16-dev libomp-16-dev" >&2; exit 69; }
flags="-O1 -fno-omit-frame-pointer -gline-tables-only -fno-sanitize-recover=all -fsanitize=fuzzer-no-link,address,undefined"
# The address sanitizer already checks pointers.
flags+=" -fno-sanitize=null,vptr,object-size,nonnull-attribute,returns-nonnull-attribute"
[ $folder = fuzz ] || flags+=" -fprofile-instr-generate -fcoverage-mapping"
# Boost and other C++ libraries of the system use libstdc++.
flags=${CXXFLAGS:-$flags}
flags="${flags//-stdlib=libc++/} -D_GLIBCXX_ASSERTIONS -Wno-ignored-attributes"
WORK=${WORK:-$root/build/$folder}
OUT=${OUT:-$WORK/out}
mkdir -p "$OUT"

# A build type without flags of its own.
cmake -S "$root" -B "$WORK" -G Ninja -DCMAKE_BUILD_TYPE=Fuzz -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_UNITY_BUILD_BATCH_SIZE=16 -DHT_CUDA=OFF -DHT_TESTS=OFF -DHT_EXAMPLES=OFF -DHT_FUZZ=ON -DHT_FUZZ_ENGINE="${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}" >&2
cmake --build "$WORK" --target fuzz_targets >&2

for program in "$WORK"/fuzz/*; do
  target=$(basename "$program")
  cp "$program" "$OUT/"
  "$root/tests/fuzz/seeds.sh" "$target" "$OUT/${target}_seed_corpus"
  if command -v zip >/dev/null; then
    (cd "$OUT/${target}_seed_corpus" && zip -q -r "../${target}_seed_corpus.zip" .)
  fi
  dictionary=$(awk -v target="$target" '$1 == target { print $2 }' "$root/tests/fuzz/targets.txt")
  cp "$root/tests/fuzz/dictionaries/$dictionary.dict" "$OUT/$target.dict"
done
echo "$OUT"
