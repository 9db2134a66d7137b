#pragma once

#include <vector>

#include "hybrid_trainer/nn/graph_part.h"

namespace hybrid_trainer::graph {

/// What a part reads, for one example.
struct ProbeInput {
  Shape shape;
  DType dtype = DType::kF32;
  bool is_of_batch = false;
};

/// What a part makes of one example, and how many numbers it keeps for backward.
struct Probed {
  Shape output;
  double kept = 0;
  double least = 0;  // where it is computed again
};

/// Makes the part for a device that computes nothing, and goes forward through it.
Probed probe(const PartMaker& make, const ModuleName& name, const std::vector<ProbeInput>& inputs);

}  // namespace hybrid_trainer::graph
