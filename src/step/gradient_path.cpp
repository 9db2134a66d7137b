#include "src/step/gradient_path.h"

#include <algorithm>
#include <iterator>

#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/optim/gradient_norm.h"
#include "src/step/accumulated_gradients.h"
#include "src/step/tree_gradients.h"

namespace hybrid_trainer {

void GradientPath::measure(PendingGradient& pending, const Stream& stream) const {
  const StepPartTimer timer(stream, StepPart::kUpdate);
  pending.squares = gradient_square_sums(parts_.weights, stream);
  std::copy_if(parts_.weights.begin(), parts_.weights.end(), std::back_inserter(pending.written),
               [](const Parameter* parameter) { return parameter->gradient().defined(); });
}

/// One alone does as several do on a processor, so that it has the same bits, unless gradients are
/// rounded.
std::unique_ptr<GradientPath> make_gradient_path(const HybridTrainerConfig& config,
                                                 const GradientParts& parts) {
  const std::int64_t bucket_bytes = bucket_bytes_for(parts.weights, config.distributed);
  if (parts.parts != nullptr)
    return make_sharded_gradients(parts, config.distributed.zero, bucket_bytes);
  if (parts.ranks != nullptr || config.phases.runs_ahead_of_ranks())
    return make_tree_gradients(parts, bucket_bytes, nullptr);
  auto accumulated = make_accumulated_gradients(config, parts);
  const bool sums_as_ranks_do =
      parts.stream.device().type == DeviceType::kCpu && config.memory.gradient_bits == 32;
  if (!sums_as_ranks_do) return accumulated;
  return make_tree_gradients(parts, bucket_bytes, std::move(accumulated));
}

}  // namespace hybrid_trainer
