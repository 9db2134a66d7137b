#include "hybrid_trainer/trainer/memory_simulation.h"

#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/trainer/model_trainable.h"

namespace hybrid_trainer {
namespace {

/// More than any device has, in one piece, so that the extent is what one slab would need.
constexpr std::size_t kEndless = std::size_t{1} << 46;

/// What is offloaded comes back into the same place, and what goes to a file leaves the device as what
/// goes to the host does: no file is written.
HybridTrainerConfig without_offload(HybridTrainerConfig config) {
  config.predict_aware_memory.offload_strategy = "none";
  if (config.memory.activations == "file") config.memory.activations = "host";
  return config;
}

}  // namespace

std::size_t simulated_step_bytes(const HybridTrainerConfig& asked, const ModelRegistry& registry) {
  const HybridTrainerConfig config = without_offload(asked);
  const Stream stream(MemoryPool::create("device", {}, simulated_memory()));
  stream.pool()->reserve(kEndless, "simulation");
  const auto model = make_model(config.model, 0, stream, registry);
  const auto host_pool = MemoryPool::create("host", {}, simulated_memory());
  ModelTrainable trainable(*model, config, stream, host_pool, [](const std::string&) {});
  const Shape shape{config.data.batch_size * config.gradient_accumulation.micro_batches,
                    config.data.sequence_length};
  const Batch batch{Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream),
                    Tensor::empty(shape, DType::kI32, MemoryKind::kData, stream)};
  for (Phase phase : {Phase::kWarmup, Phase::kFull, Phase::kCorrect}) {
    trainable.enter_phase(phase);
    trainable.wait_for_gradient(batch);
    trainable.apply_gradient();
  }
  return stream.pool()->use().extent;
}

}  // namespace hybrid_trainer
