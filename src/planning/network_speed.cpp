#include "src/planning/network_speed.h"

#include <algorithm>

#include "hybrid_trainer/core/pools.h"
#include "src/planning/gradient_time.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kWidestBlock = 512;  // wider ones hardly multiply faster
constexpr double kMeasuredFlops = 3e9;      // of a step, if an example has fewer

/// Of a step, or a part of it.
struct Work {
  double flops = 0, seconds = 0;
  double rate() const { return flops / seconds; }
  Work less(const Work& other) const { return {flops - other.flops, seconds - other.seconds}; }
  /// Whether it is near enough to the rate of all to be more than another program's disturbance.
  bool is_likely_beside(const Work& all) const {
    constexpr double kMost = 4;
    return flops > 0 && seconds > 0 && rate() < kMost * all.rate() && kMost * rate() > all.rate();
  }
};

double flops_of(const ModelConfig& model, const ModelRegistry& registry) {
  const Stream nowhere(make_device_pool({DeviceType::kCpu, 0, true}));
  const auto network = make_network(model, 0, nowhere, registry);
  return network->step_flops(network->empty_batch({.examples = 1}, nowhere));
}

/// A smaller network whose parts work as fast.
ModelConfig narrowed(ModelConfig model, const ModelFamily& family) {
  if (std::ranges::count(family.keys, "trident") > 0)
    model.trident.frames = model.trident.fragment_frames;
  if (model.width <= kWidestBlock) return model;
  const std::int64_t heads = std::max<std::int64_t>(1, model.heads * kWidestBlock / model.width);
  model.heads = kWidestBlock % heads == 0 ? heads : kWidestBlock / 64;
  model.inner_width = model.inner_width * kWidestBlock / model.width;
  model.width = kWidestBlock;
  return model;
}

Work measure(const HybridTrainerConfig& config, const ModelConfig& model, std::int64_t examples,
             const Stream& stream, const ModelRegistry& registry) {
  HybridTrainerConfig sample = gradient_alone(config);
  sample.model = model;
  sample.data.batch_size = examples;
  sample.parts.clear();
  sample.lora = {};
  const auto network = make_network(model, 0, stream, registry);
  const Batch batch = network->empty_batch({.examples = examples}, stream);
  for (const NamedTensor& one : batch.tensors()) fill_zero(one.tensor, stream);
  return {network->step_flops(batch), measure_gradient(*network, sample, batch, stream)};
}

}  // namespace

double measure_network_flops(const HybridTrainerConfig& config, const Stream& stream,
                             const ModelRegistry& registry) {
  const ModelFamily& family = find_family(config.model.family, registry);
  const auto& with_depth = family.with_depth;
  const ModelConfig model = resolved_model_config(config.model, registry),
                    less = narrowed(model, family);
  const auto wanted =
      static_cast<std::int64_t>(kMeasuredFlops / flops_of(with_depth(less, 2), registry));
  const std::int64_t examples = std::clamp<std::int64_t>(wanted, 1, config.data.batch_size);
  const Work one = measure(config, with_depth(less, 1), examples, stream, registry),
             two = measure(config, with_depth(less, 2), examples, stream, registry);
  const Work block = two.less(one), rest = one.less(block);
  if (!block.is_likely_beside(two) || !rest.is_likely_beside(two)) return two.rate();
  const double all = flops_of(model, registry);
  const double beside_blocks =
      2 * flops_of(with_depth(model, 1), registry) - flops_of(with_depth(model, 2), registry);
  return all / (beside_blocks / rest.rate() + (all - beside_blocks) / block.rate());
}

}  // namespace hybrid_trainer
