#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/routing.h"

namespace hybrid_trainer {

/// Where a router has sent its tokens since the sums were last cleared.
struct RoutingCount {
  std::string layer{};  // "h.0.mlp"
  std::int64_t experts = 0, chosen = 0;
  kernels::RoutingLosses losses{};
  Tensor sums{};   // see kernels::routing_statistics; undefined where nothing was counted
  Tensor flips{};  // see kernels::routing_flips; undefined where nothing was counted
};

class RoutedExperts;
using RoutingVisitor = std::function<void(RoutedExperts&)>;

}  // namespace hybrid_trainer
