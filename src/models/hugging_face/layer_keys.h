#pragma once

#include "hybrid_trainer/models/config_keys.h"

namespace hybrid_trainer {

/// Groups of keys of config.json that families share. A family calls those that it has, after
/// ConfigKeys::fit.

/// How heads rotate: rope_theta and rope_scaling of transformers 4, which are written and which 5 reads as
/// well, or rope_parameters of 5.
struct RotaryKeys {
  double theta = 1e4;             // of a missing rope_theta
  bool windows_have_own = false;  // ModelConfig::window_rope_theta; in 5 by layer types (Gemma 3)
  std::optional<double> share{};  // of a missing partial_rotary_factor; none: there is no such key
  bool share_is_in_parameters = false;  // outside rope_parameters that key means nothing
  bool wants_scaling = false;  // without rope_scaling transformers scales angles, which is refused
};
void rotary_keys(ConfigKeys& keys, ModelConfig& model, const RotaryKeys& rotary);

/// position_embedding_type: heads rotate if it is "rope".
void position_type_keys(ConfigKeys& keys, ModelConfig& model);

/// Which layers have a window: sliding_window, and these keys.
enum class WindowKeys {
  kNone,
  kAll,         // all layers
  kAllIfUsed,   // use_sliding_window: all layers
  kFromLayer,   // use_sliding_window, and layer_types or the first layer in max_window_layers
  kUntilLayer,  // the same, but every other layer before that one
  kLayerTypes,  // layer_types, or the family's pattern
  kPeriod,      // layer_types, or sliding_window_pattern; the layers differ even without a window
};
void window_keys(ConfigKeys& keys, ModelConfig& model, WindowKeys windows,
                 const std::string& pattern);

/// Which layers have attention; all others have the mixer of this letter.
enum class MixerKeys {
  kLayerTypes,         // layer_types
  kAttentionLayers,    // attn_layer_indices
  kAttentionInterval,  // layer_types, or full_attention_interval: every so many-th
};
void mixer_keys(ConfigKeys& keys, ModelConfig& model, MixerKeys mixers, char mixer);

/// The channels of a Mamba-2 head ("auto" or missing: what expand makes of the width), and the limits of
/// its steps. Writing throws DataError if there is no key for the heads.
struct MambaKeys {
  const char *head_size, *expand;
  std::optional<double> missing_head_size{};
};
void mamba_keys(ConfigKeys& keys, ModelConfig& model, const MambaKeys& mamba);

/// A mixture of experts; the family has not the keys that are empty. Writing throws DataError if there is no
/// key for the model's experts.
struct ExpertKeys {
  std::string count{};  // several with '|' between, the first is written
  std::string inner_width{}, shared_width{};
  /// What missing keys mean.
  std::int64_t missing_count = 0, missing_chosen = 0, missing_inner_width = 0;
  bool may_be_none = false;  // a count of 0 is a dense model
  /// Says whether the weights of the chosen experts add up to 1: not if it is missing, but in a family
  /// without it.
  std::string sums_to_one{};
  bool has_dense_layers = false;   // mlp_only_layers, decoder_sparse_step
  double missing_balance = 0.001;  // of router_aux_loss_coef
  std::string gate_limit{};        // which is 7 where the key is missing
};
void expert_keys(ConfigKeys& keys, ModelConfig& model, const ExpertKeys& experts);
/// The number of experts in a family whose mixtures are not read: folders are dense, or all their layers.
void no_expert_keys(ConfigKeys& keys, const ModelConfig& model, const std::string& count,
                    double missing_count);

/// Granite's four factors.
void scale_keys(ConfigKeys& keys, ModelConfig& model);
/// initializer_range and attention_dropout, which decoders with attention write.
void written_of_attention(ConfigKeys& keys, const ModelConfig& model);
/// hidden_act of families whose gates are SiLU.
void silu_key(ConfigKeys& keys);

}  // namespace hybrid_trainer
