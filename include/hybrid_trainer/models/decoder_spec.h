#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/models/model_config.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/residual_block.h"
#include "hybrid_trainer/nn/rotary_table.h"

namespace hybrid_trainer {

/// Those of GPT-2 at config.initializer_range; where that is left out, 0.02, below width 768 matrices
/// other than the tables larger by √(768/width).
FirstDeviations usual_deviations(const ModelConfig& config);

/// What tells one decoder from another, beside the sizes of its ModelConfig.
struct DecoderSpec {
  ResidualSpec residual;
  /// Kinds of layers by letter, and which layer is of which kind: letters, repeated over the layers.
  std::map<char, LayerSpec> kinds;
  std::string pattern;
  std::int64_t positions = 0;  // rows of a table of positions; 0: branches know positions
  /// The tables of angles that branches turn by.
  std::vector<std::shared_ptr<RotaryTable>> rotary{};
  double embedding_scale = 1;  // of the token table's rows, or of the sum with positions
  /// See Embedding::Spec.
  bool scales_tokens_alone = false;
  std::int64_t first_position = 0;
  float logit_cap = 0;          // see LanguageHead
  double logit_scale = 1;       // of the logits, before the cap
  bool tied_head = true;        // the head shares the token table
  bool embedding_norm = false;  // a norm of the embedding, "ln_e"
  bool final_norm = true;       // of the last layer's result
  bool head_bias = false;       // of the logits, read from files and not trained
  FirstDeviations deviations;
  /// Names in a Hugging Face folder.
  struct Files {
    std::string layers = "h", tokens = "wte", positions = "wpe", final_norm = "ln_f",
                embedding_norm = "ln_e", head_bias = "lm_head.bias";
  } files{};
};

/// The kind of a layer by a pattern of letters, which is repeated over the layers.
inline char kind_of_layer(const std::string& pattern, std::int64_t layer) {
  return pattern[static_cast<std::size_t>(layer) % pattern.size()];
}

/// "h.0" and so on, each of the kind that the pattern gives it. Throws OutOfMemory.
std::vector<std::unique_ptr<ResidualBlock>> make_blocks(const DecoderSpec& spec,
                                                        std::int64_t layers, const Stream& stream);

/// Problems of the pattern that a config's `key` gives: letters of no kind, or more letters than
/// layers, some of which would be of none. `kinds` tells people what the `letters` mean.
void collect_pattern_problems(const std::string& key, const std::string& pattern,
                              const std::string& letters, const std::string& kinds,
                              std::int64_t layers, std::vector<std::string>& problems);

/// Gives attention the config's pattern of blocks, if it has one.
void set_block_pattern(Attention::Spec& attention, const ModelConfig& config);

/// Problems of a config's attention_pattern, also beside a window and in an encoder.
void collect_block_pattern_problems(const ModelConfig& config, std::vector<std::string>& problems);

}  // namespace hybrid_trainer
