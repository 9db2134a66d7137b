#pragma once

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

/// The experts of a family that has some in place of the feed-forward branch.
struct FamilyExperts {
  std::int64_t count = 0;  // where the config leaves it out; 0: as where config.json does
  const char* rule = kSoftmaxOfChosenRule;
  const char* module = "mlp";  // in files
  ExpertMixture::Files files{};
  bool is_shared = false;   // may have a shared expert, behind a gate
  bool is_clamped = false;  // gates and ups are cut (ExpertConfig::gate_limit)
  bool has_biases = false;  // of router and experts
  ExpertKeys keys{};
};

/// What tells one family of decoders that rotate, gate and norm by the root mean square from
/// another.
struct RotaryDecoder {
  const char* name;
  const char* title;
  const char* architecture;
  const char* model_type = name;
  bool biased_queries = false;  // of queries, keys and values, whatever the config says
  bool query_key_norm = false;
  bool norms_all_heads = false;  // that norm is over all heads together
  bool limits_values = false;    // queries, keys and values may be cut
  bool sinks = false;            // see Attention::Spec
  NormKind norm = NormKind::kRootMeanSquare;
  kernels::Gate gate = kernels::Gate::kSilu;
  bool last_norms = false;        // norms behind branches, too
  bool scaled_embedding = false;  // by √width
  const char* windows = "";       // pattern of layers with a window; empty: the family has none
  bool window_rope = false;       // layers with a window have a base of their own
  bool caps = false;              // of scores and logits, and a scale of scores
  bool scales = false;            // Granite's four factors
  std::optional<FamilyExperts> experts{};
  bool attention_bias = false, mlp_bias = false;  // keys that it has
  // What a missing key of config.json means: 0 follows from the others.
  double file_key_heads = 0, file_head_size = 0, file_context = 0, file_theta = 1e4,
         file_epsilon = 1e-6, file_attention_cap = 0, file_logit_cap = 0;
  bool file_tied_head = false, file_attention_bias = false, file_wants_scaling = false;
  WindowKeys window_keys = WindowKeys::kNone;
  bool experts_are_parameters = false;  // see HuggingFaceLayout
  std::vector<ModelPreset> presets{};
  GgufLayout gguf{};
};

/// The registry's row.
ModelFamily rotary_decoder_family(const RotaryDecoder& kind);

}  // namespace hybrid_trainer
