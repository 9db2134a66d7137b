#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/memory/memory_places.h"

namespace hybrid_trainer {

/// What a batch of so many examples of the run looks like.
BatchForm batch_form(const HybridTrainerConfig& config, std::int64_t examples);

/// The model of a run: its weights in the pool of `home`, taken from a Hugging Face folder or drawn
/// from training.seed. With adapters (lora, parts) weights are frozen in the form that lora.base or
/// their part says, tensor by tensor, so that they are never there in f32 as a whole where a folder has
/// them.
/// Throws like make_model, read_hugging_face_weights and add_adapters.
std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<std::filesystem::path>& folder,
                                        const Stream& home, const ModelRegistry& registry);
/// The same with frozen weights where memory.device_map and memory.weights want them, and others as
/// far from the device as any.
std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<std::filesystem::path>& folder,
                                        MemoryPlaces& places, const ModelRegistry& registry);

/// A Hugging Face folder's model that is only read, its weights as lora.base says: matrices in the pool
/// of `home`, vectors in the stream's.
std::unique_ptr<Network> make_frozen_model(const ModelConfig& model,
                                           const std::filesystem::path& folder,
                                           const LoraConfig& lora, const Stream& stream,
                                           const Stream& home, const ModelRegistry& registry);

}  // namespace hybrid_trainer
