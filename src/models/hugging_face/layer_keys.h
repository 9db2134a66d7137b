#pragma once

#include "hybrid_trainer/models/config_keys.h"

namespace hybrid_trainer {

/// Groups of config.json keys that families share. Call them after ConfigKeys::fit.

/// Rotary embedding. Writes the keys of transformers 4, and also reads the ones of transformers 5.
struct RotaryKeys {
  double theta = 1e4;  // default of rope_theta
  /// True if sliding-window layers have their own theta (Gemma 3). transformers 5 stores one theta
  /// per layer type.
  bool windows_have_own = false;
  std::optional<double> share{};        // default of partial_rotary_factor; none: no such key
  bool share_is_in_parameters = false;  // whether the key is ignored outside rope_parameters
  /// Set to reject a file without rope_scaling, since transformers would scale its angles.
  bool wants_scaling = false;
  bool scales_queries = false;  // llama_4_scaling_beta is a part of rope_scaling
  const char* theta_key = "rope_theta";
  /// Null: version 4 has no such key, and version 5 has rope_parameters by layer type (OLMo 3).
  const char* window_theta_key = "rope_local_base_freq";
  std::int64_t original_context = 0;  // default if rope_scaling has none (Phi-3)
};
void rotary_keys(ConfigKeys& keys, ModelConfig& model, const RotaryKeys& rotary);

void position_type_keys(ConfigKeys& keys, ModelConfig& model);

/// Keys that select the layers with a window, in addition to sliding_window.
enum class WindowKeys {
  kNone,
  kAll,           // all layers
  kAllIfEnabled,  // use_sliding_window: all layers
  kFromLayer,     // use_sliding_window, and layer_types or the first layer in max_window_layers
  kUntilLayer,    // as kFromLayer, but with every second layer before max_window_layers
  kLayerTypes,    // layer_types, or the family's pattern
  kPeriod,        // layer_types, or sliding_window_pattern; layers differ even without a window
};
/// `missing`: the window if the key sliding_window is absent.
void window_keys(ConfigKeys& keys, ModelConfig& model, WindowKeys windows,
                 const std::string& pattern, double missing = 4096);

/// Keys that select the layers with attention. All other layers have the mixer of this letter.
enum class MixerKeys {
  kLayerTypes,         // layer_types
  kAttentionLayers,    // attn_layer_indices
  kAttentionInterval,  // layer_types, or full_attention_interval n: every n-th layer
};
void mixer_keys(ConfigKeys& keys, ModelConfig& model, MixerKeys mixers, char mixer);

/// Channels of a Mamba-2 head, computed from expand and the width if the key is missing or "auto",
/// and the limits of its steps. Writing throws DataError if there is no key for the heads.
struct MambaKeys {
  const char *head_size, *expand;
  std::optional<double> missing_head_size{};
};
void mamba_keys(ConfigKeys& keys, ModelConfig& model, const MambaKeys& mamba);

/// Keys of a mixture. Writing throws DataError if the model needs one that is empty.
struct ExpertKeys {
  std::string count{};  // alternatives separated by '|'; the first is written
  std::string intermediate_size{}, shared_width{};
  std::int64_t missing_count = 0, missing_chosen = 0, missing_intermediate_size = 0,
               missing_shared_width = 5632;
  bool zero_means_dense = false;  // a count of 0 means dense
  /// Key for normalizing the chosen experts' weights; families without such a key always normalize.
  std::string sums_to_one{};
  bool missing_sums_to_one = false;
  /// Values of ExpertConfig::rule with and without normalization.
  const char *rule_of_sum = kSoftmaxOfChosenRule, *plain_rule = kSoftmaxRule;
  bool has_dense_layers = false;   // mlp_only_layers, decoder_sparse_step
  double missing_balance = 0.001;  // default of router_aux_loss_coef
  std::string gate_limit{};        // 7 if the key is missing
};
void expert_keys(ConfigKeys& keys, ModelConfig& model, const ExpertKeys& experts);

/// Reads or writes the keys of Granite's four scale factors.
void scale_keys(ConfigKeys& keys, ModelConfig& model);
void written_of_attention(ConfigKeys& keys, const ModelConfig& model);
void silu_key(ConfigKeys& keys);

}  // namespace hybrid_trainer
