#pragma once

#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/feed_forward.h"

namespace hybrid_trainer {

/// What tells one family of decoders that rotate, gate and norm by the root mean square from
/// another.
struct RotaryDecoder {
  const char* name;
  const char* title;
  const char* architecture;
  const char* model_type = name;
  bool biased_queries = false;  // of queries, keys and values, whatever the config says
  bool query_key_norm = false;
  NormKind norm = NormKind::kRootMeanSquare;
  kernels::Gate gate = kernels::Gate::kSilu;
  bool last_norms = false;        // norms behind branches, too
  bool scaled_embedding = false;  // by √width
  const char* windows = "";       // pattern of layers with a window; empty: the family has none
  bool window_rope = false;       // layers with a window have a base of their own
  bool caps = false;              // of scores and logits, and a scale of scores
  bool attention_bias = false, mlp_bias = false;  // keys that it has
  // What a missing key of config.json means: 0 follows from the others.
  double file_key_heads = 0, file_head_size = 0, file_context = 0, file_theta = 1e4;
  bool file_tied_head = false;
  WindowKeys window_keys = WindowKeys::kNone;
  std::vector<ModelPreset> presets{};
};

/// The registry's row.
ModelFamily rotary_decoder_family(const RotaryDecoder& kind);

}  // namespace hybrid_trainer
