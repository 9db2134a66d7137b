#pragma once

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

/// Experts of a family, in place of the feed-forward branch.
struct FamilyExperts {
  std::int64_t count = 0;  // default; 0: derived as in the config
  const char* rule = kSoftmaxOfChosenRule;
  const char* module = "mlp";  // in files
  ExpertMixture::Files files{};
  bool is_shared = false;   // may have a shared expert with a gate
  bool is_clamped = false;  // clamps gates and ups (ExpertConfig::gate_limit)
  bool has_biases = false;  // of router and experts
  ExpertKeys keys{};
};

/// Settings of a family of decoders with rotary embedding, gated perceptrons and RMS norms.
struct RotaryDecoder {
  const char* name;
  const char* title;
  const char* architecture;
  const char* model_type = name;
  bool biased_queries = false;  // biases of queries, keys and values for any config
  bool query_key_norm = false;
  bool norms_all_heads = false;  // one norm over all heads
  bool limits_values = false;    // queries, keys and values may be clamped
  bool sinks = false;            // see Attention::Spec
  NormKind norm = NormKind::kRootMeanSquare;
  kernels::Gate gate = kernels::Gate::kSilu;
  bool last_norms = false;        // additional norms after the branches
  bool scaled_embedding = false;  // by √width
  const char* windows = "";       // pattern of layers with a window; empty: unsupported
  bool window_rope = false;       // layers with a window have a separate base
  bool caps = false;              // soft caps of scores and logits, and a scale of scores
  bool scales = false;            // Granite's four factors
  std::optional<FamilyExperts> experts{};
  bool attention_bias = false, mlp_bias = false;  // whether the family has these keys
  // Values of missing keys in config.json; 0: derived from the others.
  double file_kv_heads = 0, file_head_size = 0, file_context = 0, file_theta = 1e4,
         file_epsilon = 1e-6, file_attention_cap = 0, file_logit_cap = 0;
  bool file_tied_head = false, file_attention_bias = false, file_requires_scaling = false;
  WindowKeys window_keys = WindowKeys::kNone;
  bool experts_are_parameters = false;  // see HuggingFaceLayout
  std::vector<ModelPreset> presets{};
  GgufLayout gguf{};
};

/// Makes the family's entry in the registry.
ModelFamily rotary_decoder_family(const RotaryDecoder& kind);

}  // namespace hybrid_trainer
