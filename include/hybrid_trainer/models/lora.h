#pragma once

#include "hybrid_trainer/models/lora_config.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Of a lora.variant: whether B·A is multiplied by alpha/√r, and whether magnitudes are trained.
bool has_root_scale(const std::string& variant);
bool is_decomposed(const std::string& variant);

/// The modules of a Hugging Face folder that a linear map consists of, in the order of its rows.
std::vector<AdapterPart> modules_of(Linear& linear, const HuggingFaceLayout& layout);

/// By the name of its weight; none: config.rank.
using RankOfWeight = std::function<std::optional<std::int64_t>(const std::string& weight)>;

/// Gives each linear map that config.targets name an adapter: A uniform in ±1/√inputs, drawn from
/// the seed, B zero, so that the model computes what it did. The names are those of the family's
/// Hugging Face layout, also for parts of one product. `rank_of`: the rank of a linear map's weight
/// other than config.rank; 0 gives it no adapter. Throws ConfigError where a target names none.
void add_adapters(Network& network, const ModelConfig& model, const LoraConfig& config,
                  std::uint64_t seed, const Stream& stream,
                  const ModelRegistry& registry = model_families(),
                  const RankOfWeight& rank_of = {});
inline void add_adapters(LanguageModel& model, const LoraConfig& config, std::uint64_t seed,
                         const Stream& stream, const ModelRegistry& registry = model_families()) {
  add_adapters(model, model.config(), config, seed, stream, registry);
}

/// W += scale·B·A in each linear map, in f32, and no adapters any more.
void merge_adapters(Network& network, const Stream& stream);

}  // namespace hybrid_trainer
