#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/network.h"
#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Freezes the model's parameter, its `values` (f32 on the host, or simulated) held at `home` in the
/// form that lora.base names; a quantised matrix module by module (see Parameter::in_files).
void hold_frozen(Parameter& parameter, const Tensor& values, const std::string& form,
                 const Stream& home);

/// The same for all weights of a model, which are in f32.
void hold_all_frozen(Network& model, const std::string& form, const Stream& stream);

/// The same of a weight in a folder, whose codes are taken as they are where they are of that form:
/// beside them a matrix that the folder does not quantise stays in bf16.
void hold_frozen(Parameter& parameter, const FolderWeight& weight, const std::string& form,
                 const std::string& form_of_folder, const Stream& home);

/// In which form a folder's weights are held where `asked` is asked for: those that are quantised
/// stay as they are where only a precision is asked for. Throws MissingInput, DataError.
std::string form_held(const ModelFolder& folder, const std::string& asked);

/// What a batch of so many examples of the run looks like.
BatchForm batch_form(const HybridTrainerConfig& config, std::int64_t examples);

/// The model of a run: its weights in the pool of `home`, taken from a Hugging Face folder or drawn
/// from training.seed. With adapters (lora, parts) weights are frozen in the form that lora.base or
/// their part says, tensor by tensor, so that they are never there in f32 as a whole where a folder has
/// them.
/// Throws like make_model, read_hugging_face_weights and add_adapters.
std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<ModelFolder>& folder,
                                        const Stream& home, const ModelRegistry& registry);
/// The same with frozen weights where memory.device_map and memory.weights want them, and others as
/// far from the device as any.
std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<ModelFolder>& folder,
                                        MemoryPlaces& places, const ModelRegistry& registry);

/// A Hugging Face folder's model that is only read, its weights as lora.base says: matrices in the pool
/// of `home`, vectors in the stream's.
std::unique_ptr<Network> make_frozen_model(const ModelConfig& model, const ModelFolder& folder,
                                           const LoraConfig& lora, const Stream& stream,
                                           const Stream& home, const ModelRegistry& registry);

}  // namespace hybrid_trainer
