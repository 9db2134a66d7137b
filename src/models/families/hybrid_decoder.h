#pragma once

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/expert_mixture.h"

namespace hybrid_trainer {

ProductFiles default_attention_files(const ModelConfig& config);
ProductFiles state_space_files(const ModelConfig& config);

/// Settings of a family whose layers mix tokens by attention, a recurrence or a structured matrix.
struct HybridDecoder {
  const char* name;
  const char* title;
  std::string letters;  // supported mixers, of ModelConfig::mixers
  std::string pattern;  // default of the layers' mixers
  /// Supported mixers of an encoder (ModelConfig::bidirectional); empty: decoder only.
  std::string encoder_letters{};
  NormKind norm = NormKind::kRootMeanSquare;
  bool has_feed_forward = true;
  bool query_key_norm = false;
  bool gated_attention = false;
  bool attention_bias = false, mlp_bias = false;  // whether the family has these keys
  bool scales = false;                            // Granite's four factors
  bool rotates_all_or_none = false;               // rotates all channels of a head or none
  bool has_experts = false;                       // layers may have a mixture of experts
  std::int64_t experts = 0, chosen_experts = 2;   // defaults
  const char* expert_rule = kSoftmaxOfChosenRule;
  float expert_epsilon = 1e-20f;  // see kernels::RoutingSpec
  enum class SharedExpert {
    kFeedForward,  // the feed-forward branch; all layers have a mixture or none
    kGated,        // of ExpertConfig::shared_width, with a gate
    kNone,
  } shared_expert = SharedExpert::kFeedForward;
  /// Returns whether ExpertConfig::layers selects layers with a mixture; the others are dense.
  bool selects_layers() const {
    return has_feed_forward && shared_expert != SharedExpert::kFeedForward;
  }
  struct Files {
    std::string tokens = "embed_tokens", final_norm = "norm";
    std::string mixer, mixer_norm = "input_layernorm";
    ProductFiles (*mixer_products)(const ModelConfig& config) = nullptr;
    ProductFiles (*attention)(const ModelConfig& config) = default_attention_files;
    std::string query_key_norm = "norm";  // see HeadNorms
    std::string mlp = "mlp", mlp_norm = "post_attention_layernorm";
    ProductFiles mlp_products{};
    std::string mixture{};
    ExpertMixture::Files mixture_products{};
  } files;
  HuggingFaceLayout layout{};  // empty: transformers has no such model
  std::vector<ModelPreset> presets{};
  GgufLayout gguf{};
};

ModelFamily hybrid_decoder_family(const HybridDecoder& kind);

/// The first keys of config.json in families with attention mixers, and the layout of their
/// folders. Keys and defaults are the same as in transformers 5.24.
void sizes_with_attention(ConfigKeys& keys, ModelConfig& model);
HuggingFaceLayout with_attention(const char* model_type, const char* architecture,
                                 void (*keys)(ConfigKeys& keys, ModelConfig& model));

}  // namespace hybrid_trainer
