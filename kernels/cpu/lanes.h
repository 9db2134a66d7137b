#pragma once

#include <type_traits>

#include "hybrid_trainer/core/processor.h"

namespace hybrid_trainer::kernels::cpu {

/// function(the floats of a vector) as an integral_constant.
template <class Function>
void with_lanes(const Function& function) {
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return function(std::integral_constant<int, 16>());
    case InstructionSet::kAvx2:
      return function(std::integral_constant<int, 8>());
    case InstructionSet::kBaseline:
      return function(std::integral_constant<int, 4>());
  }
}

}  // namespace hybrid_trainer::kernels::cpu
