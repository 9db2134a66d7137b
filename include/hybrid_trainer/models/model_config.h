#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/models/block_pattern_config.h"
#include "hybrid_trainer/models/encoder_config.h"
#include "hybrid_trainer/models/expert_config.h"
#include "hybrid_trainer/models/semiseparable_config.h"
#include "hybrid_trainer/models/series_config.h"
#include "hybrid_trainer/models/state_space_config.h"
#include "hybrid_trainer/models/trident_config.h"
#include "hybrid_trainer/models/vision_config.h"
#include "hybrid_trainer/nn/rotary_table.h"

namespace hybrid_trainer {

/// What is built: a family and its shape. A family may lack some of the keys (see ModelFamily).
struct ModelConfig {
  std::string family = "gpt2";
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t context = 1024;
  std::int64_t vocabulary = 0;
  double dropout = 0.0;
  std::optional<double> initializer_range{};
  std::int64_t key_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t inner_width = 0;
  ExpertConfig experts{};
  double norm_epsilon = 1e-5;
  double rope_theta = 1e4;
  RotaryScaling rope_scaling{};
  bool tied_head = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::int64_t window = 0;
  std::string window_layers{};
  double window_rope_theta = 0;
  BlockPatternConfig attention_pattern{};
  double query_scalar = 0;
  double attention_cap = 0;
  double query_key_value_limit = 0;
  double logit_cap = 0;
  std::string mixers{};
  bool two_way = false;
  StateSpaceConfig state_space{};
  SemiseparableConfig semiseparable{};
  double rotary_share = 1;
  double embedding_scale = 1;
  double residual_scale = 1;
  double logit_scale = 1;
  EncoderConfig encoder{};
  TridentConfig trident{};
  SeriesConfig series{};
  VisionConfig vision{};

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "family", self.family,
        "Kind of model: gpt2, llama, mistral, qwen2, qwen3, qwen3_5, qwen3_next, gemma2, gemma3, "
        "mamba2, granitemoehybrid, bamba or semiseparable; with experts mixtral, qwen2_moe, "
        "qwen3_moe, olmoe or granitemoe; with an encoder whisper or bart; of pictures vit, of "
        "several sensors trident, of tables series."});
    visit(Field{"layers", self.layers, "Transformer blocks.", Range::between(1, 1000)});
    visit(Field{"heads", self.heads,
                "Attention heads; must divide the width, unless head_size is given.",
                Range::between(1, 1024)});
    visit(
        Field{"width", self.width, "Channels C of the residual stream.", Range::between(1, 65536)});
    visit(Field{"context", self.context, "Positions that the model knows: its longest sequence.",
                Range::between(1, 1 << 20)});
    visit(Field{"vocabulary", self.vocabulary,
                "Tokens of the vocabulary; 0 takes the size of the data's tokenizer.",
                Range::between(0, 1 << 24)});
    visit(Field{
        "dropout", self.dropout,
        "Share of the outputs of the embedding and of both branches that is dropped in training.",
        Range::fraction()});
    visit(Field{"initializer_range", self.initializer_range,
                "Standard deviation of the first weights. The products that end the branches have "
                "it divided by √(2·layers). Left out: 0.02; matrices of models narrower than 768 "
                "have it times √(768/width).",
                Range{0, 1, true, false}});
    visit(Field{"key_heads", self.key_heads,
                "Heads of keys and values; must divide heads. heads/key_heads query heads read "
                "each of them; 0 uses as many as heads.",
                Range::between(0, 1024)});
    visit(Field{"head_size", self.head_size,
                "Channels of each head, an even number; 0 uses width/heads.",
                Range::between(0, 1024)});
    visit(Field{"inner_width", self.inner_width,
                "Channels between the products of the feed-forward branch; 0 uses 8/3 of the "
                "width, rounded up to a multiple of 64.",
                Range::between(0, 1 << 20)});
    visit(Field{"experts", self.experts,
                "A mixture of experts in place of the feed-forward branch."});
    visit(Field{"norm_epsilon", self.norm_epsilon,
                "Epsilon that LayerNorm adds to the variance and RMSNorm to the mean square.",
                Range::between(1e-12, 1)});
    visit(Field{"rope_theta", self.rope_theta,
                "Base of the angles by which positions rotate queries and keys.",
                Range::between(1, 1e12)});
    visit(Field{"rope_scaling", self.rope_scaling,
                "How rotary angles change for contexts longer than the original one."});
    visit(Field{"tied_head", self.tied_head, "The head shares the token table."});
    visit(Field{
        "attention_bias", self.attention_bias,
        "Attention's products have biases. In qwen2 those of queries, keys and values always do."});
    visit(Field{"mlp_bias", self.mlp_bias, "The feed-forward branch's products have biases."});
    visit(Field{"window", self.window,
                "Keys that a query sees in the layers of window_layers, or in all layers of "
                "attention among others, its own included; 0: all.",
                Range::between(0, 1 << 24)});
    visit(Field{"window_layers", self.window_layers,
                "One letter per layer, repeated: w with the window, a without. Empty uses the "
                "family's pattern: w; gemma2 wa; gemma3 wwwwwa."});
    visit(Field{"window_rope_theta", self.window_rope_theta,
                "rope_theta of the layers with a window, without scaling; 0 uses 10000.",
                Range::between(0, 1e12)});
    visit(Field{"attention_pattern", self.attention_pattern,
                "Blocks of keys that attention keeps to, in place of a window."});
    visit(Field{"query_scalar", self.query_scalar,
                "Attention scores are divided by the square root of this; 0 uses the head size.",
                Range::at_least(0)});
    visit(Field{"attention_cap", self.attention_cap,
                "Soft cap c of attention scores s: they become c·tanh(s/c); 0 caps nothing.",
                Range::at_least(0)});
    visit(Field{"query_key_value_limit", self.query_key_value_limit,
                "Queries, keys and values are cut to [−limit, limit]; 0: they are not (olmoe).",
                Range::at_least(0)});
    visit(Field{"logit_cap", self.logit_cap,
                "Soft cap c of logits s: they become c·tanh(s/c); 0 caps nothing.",
                Range::at_least(0)});
    visit(Field{"mixers", self.mixers,
                "What mixes the tokens of each layer, one letter per layer, repeated: a attention, "
                "m Mamba-2, d Gated DeltaNet; in semiseparable also c attention behind a short "
                "convolution, t T + U·Vᵀ from tokens, p by position, and in encoders h Hydra, b BK "
                "core. Empty uses the family's pattern: mamba2 m; granitemoehybrid and bamba mmma; "
                "qwen3_5 and qwen3_next ddda; semiseparable t."});
    visit(Field{"two_way", self.two_way,
                "An encoder: each token sees those after it as well as those before it, and it "
                "cannot generate text (semiseparable)."});
    visit(Field{"state_space", self.state_space,
                "Sizes of the mixers with a recurrence: Mamba-2, Gated DeltaNet and Hydra; taps "
                "also of attention's convolution."});
    visit(Field{"semiseparable", self.semiseparable, "Sizes of the mixers T + U·Vᵀ and BK core."});
    visit(Field{"rotary_share", self.rotary_share,
                "Share of each head's channels that positions rotate, the first ones; 0: none, and "
                "positions are known by the other mixers alone.",
                Range::between(0, 1)});
    visit(Field{"embedding_scale", self.embedding_scale,
                "Factor of the token table's rows where they enter the first layer.",
                Range::above(0)});
    visit(Field{"residual_scale", self.residual_scale,
                "Factor of what each branch adds to the residual stream.", Range::above(0)});
    visit(Field{"logit_scale", self.logit_scale, "Factor of the logits.", Range::above(0)});
    visit(Field{"encoder", self.encoder,
                "Sizes of the encoder that the decoder reads by cross attention (whisper, bart)."});
    visit(Field{"trident", self.trident,
                "Sizes of the sensors and of the parts that read them (trident)."});
    visit(Field{"series", self.series, "The table that a network of series learns from (series)."});
    visit(Field{"vision", self.vision, "What a model of pictures sees and tells apart (vit)."});
  }
};

/// A model whose weights come from elsewhere, with what `asked` says of training it: its dropout, and
/// what it sets of losses and biases of experts and of the pattern of attention. `keys` that were set
/// may change the context and rope_scaling of a model whose positions are rotary angles; throws
/// ConfigError of another one.
ModelConfig with_training_of(ModelConfig model, const ModelConfig& asked,
                             const std::vector<std::string>& keys = {});

}  // namespace hybrid_trainer
