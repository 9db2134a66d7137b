#include "hybrid_trainer/nn/routing_count.h"

namespace hybrid_trainer {
namespace {

void make_zeros_once(Tensor& sums, std::int64_t numbers, const Stream& stream) {
  if (!sums) sums = Tensor::zeros({numbers}, DType::kF64, MemoryKind::kWorkspace, stream);
}

}  // namespace

void RoutingCount::add(const Tensor& logits, const kernels::Routing& routing,
                       const Stream& stream) {
  make_zeros_once(sums, kernels::routing_numbers(experts), stream);
  kernels::routing_statistics(sums, logits, routing, stream);
}

void RoutingCount::add_flips(const kernels::Routing& routing, const kernels::Routing& before,
                             const Stream& stream) {
  make_zeros_once(flips, 2, stream);
  kernels::routing_flips(flips, routing, before, stream);
}

}  // namespace hybrid_trainer
