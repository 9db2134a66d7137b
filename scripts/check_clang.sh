#!/usr/bin/env bash
# Builds the program, the tests and the examples with clang 16 of Debian 12 in build-clang/. A warning fails the build. Its default,
# clang 14, does not parse the ranges of libstdc++ 12.
# Needs clang-16 and libomp-16-dev; without a compiler cache it takes about as long as scripts/build.sh.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
takes_no_arguments "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v clang++-16 >/dev/null || { echo "error: clang++-16 is missing; as root: apt-get install clang-16 libomp-16-dev" >&2; exit 69; }
# Kernels prefer vectors of 512 bits by an attribute of GCC, which clang ignores.
cmake -S . -B build-clang -G Ninja -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON \
  -DCMAKE_CXX_FLAGS=-Wno-ignored-attributes -DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DHT_CUDA=OFF >/dev/null
cmake --build build-clang
echo "clang $(clang++-16 -dumpversion): no warning"
