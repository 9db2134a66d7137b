#pragma once

#include "hybrid_trainer/models/lora_config.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Of a lora.variant: whether B·A is multiplied by alpha/√r, and whether magnitudes are trained.
bool has_root_scale(const std::string& variant);
bool is_decomposed(const std::string& variant);

/// The modules of a Hugging Face folder that a linear map consists of, in the order of its rows.
std::vector<AdapterPart> modules_of(Linear& linear, const HuggingFaceLayout& layout);

/// Gives each linear map that config.targets name an adapter: A uniform in ±1/√inputs, drawn from
/// the seed, B zero, so that the model computes what it did. The names are those of the family's
/// Hugging Face layout, also for parts of one product. Throws ConfigError where a target names none.
void add_adapters(LanguageModel& model, const LoraConfig& config, std::uint64_t seed,
                  const Stream& stream, const ModelRegistry& registry = model_families());

/// W += scale·B·A in each linear map, in f32, and no adapters any more.
void merge_adapters(LanguageModel& model, const Stream& stream);

}  // namespace hybrid_trainer
