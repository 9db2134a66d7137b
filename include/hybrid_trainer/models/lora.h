#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {

/// Value of lora.targets for every linear map.
inline constexpr const char* kAllLinear = "all-linear";

/// Name in lora.targets for the linear maps of all experts.
inline constexpr const char* kExpertTargets = "experts";

/// Value of lora.base that keeps the quantized blocks of a GGUF file.
inline constexpr const char* kFileBase = "file";

/// Values of lora.base.
const std::vector<std::string>& frozen_base_names();
/// Returns whether the base is quantized to fewer than 16 bits.
bool is_quantized_base(const std::string& name);

/// Requires adapters on the model or on parts of it.
KeyNeed adapters_required();
/// Requires frozen weights.
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
  /// Not a key: the GGUF file whose quantized blocks are kept if base is "file". The code that
  /// opens the file sets this, so that memory is planned with the types of its blocks.
  std::string file{};
  /// Not a key: true if a PEFT folder replaces token table and head with another number of tokens.
  bool replaces_tables = false;

  bool is_on() const { return rank > 0; }
  /// Returns the scale of B·A in an adapter of this rank.
  double scale_of(std::int64_t of_rank) const;
  /// Returns the rank of an expert's adapters if tokens go to `chosen` of `count` experts.
  std::int64_t rank_of_experts(std::int64_t chosen, std::int64_t count) const;
  std::vector<std::string> target_names() const;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"rank", self.rank,
                "Rank r of the adapters B·A that are trained on top of frozen weights; 0 trains "
                "the weights themselves.",
                Range::between(0, 4096)}
              .essential(Question::kModel));
    visit(Field{"expert_rank", self.expert_rank,
                "Rank of the adapters of each expert; 0 uses rank times the share of experts that "
                "a token is routed to, rounded up.",
                Range::between(0, 4096)}
              .needs_any(adapters_required()));
    visit(Field{"alpha", self.alpha, "Scale of the adapters: B·A is multiplied by alpha/r.",
                Range::above(0)}
              .needs_any(adapters_required()));
    visit(Field{"dropout", self.dropout,
                "Dropout probability of the inputs of adapters, in training only.",
                Range::fraction()}
              .needs_any(adapters_required()));
    visit(
        Field{"targets", self.targets,
              "Modules that get an adapter, separated by commas: their names in a Hugging Face "
              "folder or the ends of these names, such as q_proj,v_proj; experts selects all "
              "products of experts. all-linear selects every product except the head and routers."}
            .needs_any(adapters_required()));
    visit(Field{"variant",
                self.variant,
                "Kind of adapter: lora; rslora, which multiplies B·A by alpha/√r; dora, which also "
                "trains a magnitude for each row and recomputes the whole matrix for each product; "
                "or rsdora, which does both.",
                Range{},
                {"lora", "rslora", "dora", "rsdora"}}
              .needs_any(adapters_required()));
    visit(
        Field{"base", self.base,
              "Storage of the frozen weights. fp32; bf16, rounded once; or quantized as in "
              "bitsandbytes: int8, 8 bits by rows; fp4 or nf4, 4 bits in blocks of 64 with double "
              "quantization; or mxfp4, 4 bits in blocks of 32. Quantized models keep embedding and "
              "head in bf16. file, for a model in a GGUF file, keeps all weights in the file's own "
              "blocks. A product in another precision converts the weights it needs.",
              Range{}, frozen_base_names()}
            .essential(Question::kModel)
            .needs_any(frozen_weights_required()));
  }
};

/// Returns whether a lora.variant scales B·A by alpha/√r, and whether it trains magnitudes.
bool has_root_scale(const std::string& variant);
bool is_decomposed(const std::string& variant);

/// Returns the folder's modules that a linear map consists of, in the order of its rows.
std::vector<AdapterPart> modules_of(Linear& linear, const HuggingFaceLayout& layout);

/// Returns the rank for a weight's adapter; none: config.rank.
using RankOfWeight = std::function<std::optional<std::int64_t>(const Parameter& weight)>;

/// Adds an adapter to each linear map named in config.targets: A uniform in ±1/√inputs, drawn from
/// the seed, and B zero, so that the model's output does not change. Targets use the family's
/// Hugging Face names, including parts of one product. `rank_of` overrides config.rank per weight;
/// 0 adds no adapter. Throws ConfigError if a target matches nothing.
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
