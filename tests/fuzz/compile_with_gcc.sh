#!/usr/bin/env bash
# COMPILER ARGUMENT...: runs GCC with a command line of clang, without the options that only clang has.
shift
arguments=()
for argument; do
  case $argument in
    -fsanitize=* | -fno-sanitize* | -gline-tables-only | -fprofile-instr-generate | -fcoverage-mapping | -fcolor-diagnostics) ;;
    -fopenmp=*) arguments+=(-fopenmp) ;;
    *) arguments+=("$argument") ;;
  esac
done
exec g++ "${arguments[@]}"
