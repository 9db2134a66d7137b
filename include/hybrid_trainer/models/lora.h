#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

inline constexpr const char* kAllLinear = "all-linear";

inline constexpr const char* kExpertTargets = "experts";

inline constexpr const char* kFileBase = "file";  // keeps the quantized blocks of a GGUF file

/// Values of lora.base.
const std::vector<std::string>& frozen_base_names();
/// Returns whether the base is quantized to fewer than 16 bits.
bool is_quantized_base(const std::string& name);

/// Returns the condition that the model or one of its parts has adapters.
KeyNeed adapters_required();
KeyNeed frozen_weights_required();

/// Low-rank adapters on frozen weights.
struct LoraConfig {
  std::int64_t rank = 0;
  std::int64_t expert_rank = 0;
  double alpha = 16;
  double dropout = 0;
  std::string targets = kAllLinear;
  std::string variant = "lora";
  std::string base = "fp32";
  /// Not a key: path of the GGUF file whose quantized blocks are kept if base is "file".
  std::string file{};
  /// Not a key: whether the PEFT folder contains a token table and head of another vocabulary size.
  bool replaces_tables = false;

  bool is_on() const { return rank > 0; }
  /// Returns the factor of B·A in an adapter of rank `of_rank`.
  double scale_of(std::int64_t of_rank) const;
  /// Returns the rank of expert adapters if tokens are routed to `chosen` of `count` experts.
  std::int64_t rank_of_experts(std::int64_t chosen, std::int64_t count) const;
  std::vector<std::string> target_names() const;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"rank", self.rank,
                "Rank r of the adapters B·A, which are trained while the weights are frozen; 0 "
                "trains the weights themselves.",
                Range::between(0, 4096)}
              .essential(Question::kModel));
    visit(Field{"expert_rank", self.expert_rank,
                "Rank of the adapters of each expert; 0 uses rank · (chosen experts / experts), "
                "rounded up.",
                Range::between(0, 4096)}
              .needs_any(adapters_required()));
    visit(Field{"alpha", self.alpha, "Scale of the adapters: B·A is multiplied by alpha/r.",
                Range::above(0)}
              .needs_any(adapters_required()));
    visit(Field{"dropout", self.dropout,
                "Dropout probability of the inputs of adapters, in training only.",
                Range::fraction()}
              .needs_any(adapters_required()));
    visit(Field{"targets", self.targets,
                "Modules with adapters: names in a Hugging Face folder or the ends of names, "
                "separated by commas, such as q_proj,v_proj. experts selects all products of "
                "experts; all-linear selects every product except the head and routers."}
              .needs_any(adapters_required()));
    visit(Field{"variant",
                self.variant,
                "Kind of adapter: lora; rslora, which multiplies B·A by alpha/√r; dora, which also "
                "trains a magnitude for each row and recomputes the whole matrix for each product; "
                "or rsdora, which does both.",
                Range{},
                {"lora", "rslora", "dora", "rsdora"}}
              .needs_any(adapters_required()));
    visit(Field{"base", self.base,
                "Storage of the frozen weights: fp32, bf16, or quantized. As in bitsandbytes, int8 "
                "has 8 bits with a scale per row; fp4 and nf4 have 4 bits in blocks of 64 with "
                "double quantization. mxfp4 has 4 bits in blocks of 32. file keeps the blocks of a "
                "GGUF file. Except with file, quantized models keep embedding and head in bf16. "
                "Products convert the weights to their precision when they need them.",
                Range{}, frozen_base_names()}
              .essential(Question::kModel)
              .needs_any(frozen_weights_required()));
  }
};

/// Return whether a lora.variant scales B·A by alpha/√r, and whether it trains magnitudes.
bool has_root_scale(const std::string& variant);
bool is_decomposed(const std::string& variant);

/// Returns the modules of a Hugging Face folder that form a linear map, in the order of its rows.
std::vector<AdapterPart> modules_of(Linear& linear, const HuggingFaceLayout& layout);

using RankOfWeight = std::function<std::optional<std::int64_t>(const Parameter& weight)>;

/// Adds an adapter to each linear map in config.targets. A target is one of the family's Hugging
/// Face module names, and may be part of a linear map. A is uniform in ±1/√inputs, and B is zero,
/// so the output does not change. `rank_of` overrides config.rank; 0 adds none. Throws ConfigError
/// if a target matches nothing.
void add_adapters(Network& network, const ModelConfig& model, const LoraConfig& config,
                  std::uint64_t seed, const Stream& stream,
                  const ModelRegistry& registry = model_families(),
                  const RankOfWeight& rank_of = {});
inline void add_adapters(LanguageModel& model, const LoraConfig& config, std::uint64_t seed,
                         const Stream& stream, const ModelRegistry& registry = model_families()) {
  add_adapters(model, model.config(), config, seed, stream, registry);
}

/// Merges adapters: adds scale·B·A to W in each linear map, in f32, and removes the adapters.
void merge_adapters(Network& network, const Stream& stream);

}  // namespace hybrid_trainer
