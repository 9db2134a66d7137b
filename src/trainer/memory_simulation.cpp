#include "hybrid_trainer/trainer/memory_simulation.h"

#include "hybrid_trainer/models/gpt2.h"
#include "hybrid_trainer/trainer/model_trainable.h"

namespace hybrid_trainer {
namespace {

/// More than any device has, in one piece, so that the extent is what one slab would need.
constexpr std::size_t kEndless = std::size_t{1} << 46;

/// Nothing can be timed on a simulated device; with bf16 as the faster one, "auto" keeps f32
/// masters and bf16 copies at once, which is the larger need.
HybridTrainerConfig without_timing(HybridTrainerConfig config) {
  for (std::string* precision :
       {&config.mixed_precision.warmup, &config.mixed_precision.full,
        &config.mixed_precision.predict, &config.mixed_precision.correct}) {
    if (*precision == "auto") *precision = "bf16";
  }
  config.predict_aware_memory.offload_strategy = "none";
  return config;
}

}  // namespace

std::size_t simulated_step_bytes(const HybridTrainerConfig& asked) {
  const HybridTrainerConfig config = without_timing(asked);
  const Stream stream(MemoryPool::create("device", {}, simulated_memory()));
  stream.pool()->reserve(kEndless, "simulation");
  Gpt2 model(config.model, 0, stream);
  const auto host_pool = MemoryPool::create("host");
  ModelTrainable trainable(model, config, stream, host_pool, [](const std::string&) {});
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
