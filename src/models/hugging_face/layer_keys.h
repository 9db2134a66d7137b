#pragma once

#include "hybrid_trainer/models/config_keys.h"

namespace hybrid_trainer {

/// Groups of keys of config.json that families share, called after ConfigKeys::fit.

/// Rotary embedding: writes transformers 4's rope_theta and rope_scaling; also reads version 5's.
struct RotaryKeys {
  double theta = 1e4;  // if rope_theta is missing
  /// ModelConfig::window_rope_theta; version 5: by layer type (Gemma 3)
  bool windows_have_own = false;
  std::optional<double> share{};        // if partial_rotary_factor is missing; none: no such key
  bool share_is_in_parameters = false;  // the key is ignored outside rope_parameters
  /// A file without rope_scaling is rejected, since transformers would scale its angles.
  bool wants_scaling = false;
  const char *theta_key = "rope_theta", *window_theta_key = "rope_local_base_freq";
};
void rotary_keys(ConfigKeys& keys, ModelConfig& model, const RotaryKeys& rotary);

/// position_embedding_type: rotary embedding if it is "rope".
void position_type_keys(ConfigKeys& keys, ModelConfig& model);

/// Keys that select the layers with a window, in addition to sliding_window.
enum class WindowKeys {
  kNone,
  kAll,           // all layers
  kAllIfEnabled,  // use_sliding_window: all layers
  kFromLayer,     // use_sliding_window, and layer_types or the first layer in max_window_layers
  kUntilLayer,    // as kFromLayer, but every second layer before that one
  kLayerTypes,    // layer_types, or the family's pattern
  kPeriod,        // layer_types, or sliding_window_pattern; layers differ even without a window
};
void window_keys(ConfigKeys& keys, ModelConfig& model, WindowKeys windows,
                 const std::string& pattern);

/// Keys that select the layers with attention; all others have the mixer of this letter.
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

/// A mixture of experts. Empty keys are unsupported: writing such a model throws DataError.
struct ExpertKeys {
  std::string count{};  // alternatives separated by '|', the first is written
  std::string intermediate_size{}, shared_width{};
  /// Values of missing keys.
  std::int64_t missing_count = 0, missing_chosen = 0, missing_intermediate_size = 0;
  bool zero_means_dense = false;  // a count of 0 means dense
  /// Key for normalizing the chosen experts' weights. A missing key means no; families without such
  /// a key always normalize.
  std::string sums_to_one{};
  bool has_dense_layers = false;   // mlp_only_layers, decoder_sparse_step
  double missing_balance = 0.001;  // if router_aux_loss_coef is missing
  std::string gate_limit{};        // 7 if the key is missing
};
void expert_keys(ConfigKeys& keys, ModelConfig& model, const ExpertKeys& experts);
/// Key for the number of experts in a family without mixtures: all layers must be dense.
void no_expert_keys(ConfigKeys& keys, const ModelConfig& model, const std::string& count,
                    double missing_count);

/// Keys for Granite's four factors.
void scale_keys(ConfigKeys& keys, ModelConfig& model);
/// initializer_range and attention_dropout, written for decoders with attention.
void written_of_attention(ConfigKeys& keys, const ModelConfig& model);
/// hidden_act of families with SiLU gates.
void silu_key(ConfigKeys& keys);

}  // namespace hybrid_trainer
