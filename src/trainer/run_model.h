#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/network.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Freezes a parameter with `values` (f32 on the host, or simulated), stored in `home` in a format
/// of lora.base. A quantized matrix is stored module by module (Parameter::in_files).
void store_frozen(Parameter& parameter, const Tensor& values, const std::string& form,
                  const Stream& home);

/// Freezes all weights of a model, which are in f32.
void store_all_frozen(Network& model, const std::string& form, const Stream& stream);

/// Freezes a weight with the values of a folder. Copies its quantized codes if they have the right
/// format. Matrices that a quantized folder does not quantize are stored in bf16.
void store_frozen(Parameter& parameter, const FolderWeight& weight, const std::string& form,
                  const std::string& form_of_folder, const Stream& home);

/// Returns the format of a folder's frozen weights if `asked` is requested. If `asked` is not a
/// quantized format, quantized weights keep their format. Throws MissingInput, DataError.
std::string frozen_format(const ModelFolder& folder, const std::string& asked);

BatchForm batch_form(const HybridTrainerConfig& config, std::int64_t examples);

/// Throws ConfigError if the config pools texts and the model has no text head.
void set_text_loss(const HybridTrainerConfig& config, Network& model);

/// Makes the model of a run in the pool of `home`, from a Hugging Face folder or training.seed.
/// Freezes the weights of a model with adapters (lora, parts) one at a time, so that the whole model
/// never exists in f32. Throws the errors of make_model, read_hugging_face_weights, add_adapters.
std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<ModelFolder>& folder,
                                        const Stream& home, const ModelRegistry& registry);
/// Makes the model with frozen weights at the placements set by memory.device_map and
/// memory.weights, and trained weights at the placement farthest from the device.
std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<ModelFolder>& folder,
                                        MemoryPlaces& places, const ModelRegistry& registry);

/// Makes a read-only model from a Hugging Face folder, with weights in the format of `lora`:
/// matrices in the pool of `home`, vectors in the stream's.
std::unique_ptr<Network> make_frozen_model(const ModelConfig& model, const ModelFolder& folder,
                                           const LoraConfig& lora, const Stream& stream,
                                           const Stream& home, const ModelRegistry& registry);

}  // namespace hybrid_trainer
