#pragma once

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

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

/// Names in files of the norms before and after a layer's branches; empty: no such norm.
struct LayerNorms {
  std::string attention = "input_layernorm", after_attention{},
              feed_forward = "post_attention_layernorm", after_feed_forward{};
};

struct RotaryDecoder {
  const char* name;
  const char* title;
  const char* architecture;
  const char* model_type = name;
  bool biased_queries = false;  // biases of queries, keys and values for any config
  bool output_bias = true;      // attention_bias also gives the output a bias
  bool query_key_norm = false;
  bool norms_all_heads = false;     // one norm over all heads
  bool limits_values = false;       // queries, keys and values may be clamped
  bool sinks = false;               // see Attention::Spec
  bool pairs_are_adjacent = false;  // see kernels::RotatedHeads
  NormKind norm = NormKind::kRootMeanSquare;
  kernels::Gate gate = kernels::Gate::kSilu;
  LayerNorms norms{};
  bool scaled_embedding = false;  // by √width
  bool scales_queries = false;    // see RotaryScaling::query_growth
  const char* windows = "";       // pattern of layers with a window; empty: unsupported
  const char* letters = "wa";     // supported letters of window_layers
  bool window_rope = false;       // layers with a window have a separate base
  bool may_be_encoder = false;    // may see later tokens (use_bidirectional_attention)
  bool caps = false;              // soft caps of scores and logits, and a scale of scores
  bool scales = false;            // Granite's four factors
  std::optional<FamilyExperts> experts{};
  bool attention_bias = false, mlp_bias = false;  // whether the family has these keys
  std::vector<std::string> attention_files{"q_proj", "k_proj", "v_proj"},
      feed_forward_files{"gate_proj", "up_proj"};
  // Values of missing keys in config.json; 0: derived from the others.
  double file_kv_heads = 0, file_head_size = 0, file_context = 0, file_theta = 1e4,
         file_epsilon = 1e-6, file_attention_cap = 0, file_logit_cap = 0, file_window = 4096;
  std::optional<double> file_rotary_share{};  // none: all channels rotate
  bool file_tied_head = false, file_attention_bias = false, file_requires_scaling = false;
  WindowKeys window_keys = WindowKeys::kNone;
  const char* window_theta_key = "rope_local_base_freq";
  std::int64_t file_original_context = 0;
  /// Reads or writes more keys of config.json, after the others; null: there are none.
  void (*more_keys)(ConfigKeys& keys, ModelConfig& model) = nullptr;
  bool experts_are_parameters = false;  // see HuggingFaceLayout
  HuggingFaceLayout::Outer outer{};
  std::vector<std::string> carried{};
  std::vector<ModelPreset> presets{};
  GgufLayout gguf{};
};

ModelFamily rotary_decoder_family(const RotaryDecoder& kind);

}  // namespace hybrid_trainer
