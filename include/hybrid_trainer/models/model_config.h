#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/models/network_config.h"
#include "hybrid_trainer/nn/positional_encoding.h"

namespace hybrid_trainer {

inline constexpr const char* kSoftmaxRule = "softmax";
inline constexpr const char* kSoftmaxOfChosenRule = "softmax_of_chosen";
inline constexpr const char* kSigmoidRule = "sigmoid";
inline constexpr const char* kPlainSigmoidRule = "plain_sigmoid";

/// Letters of model.mixers, model.window_layers and model.experts.layers, with their words.
const std::vector<LetterWord>& mixer_letters();
std::vector<LetterWord> window_letters(std::string_view letters = "wavn");
const std::vector<LetterWord>& expert_letters();

/// A mixture of experts that replaces the feed-forward branch.
struct ExpertConfig {
  std::int64_t count = 0;
  std::int64_t chosen = 0;
  std::int64_t intermediate_size = 0;
  std::string rule{};
  std::string layers{};
  std::int64_t shared_width = 0;
  double gate_limit = 0;
  double scale = 1;
  bool selection_bias = false;
  double balance_loss = 0;
  double bias_rate = 0;
  double z_loss = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"count", self.count,
                "Experts per layer; 0 uses the family's number, which is none for families that "
                "also have dense models.",
                Range::between(0, 1024)});
    visit(Field{"chosen", self.chosen, "Experts per token; 0 uses the family's number.",
                Range::between(0, 64)});
    visit(Field{"intermediate_size", self.intermediate_size,
                "Inner width of an expert, in channels; 0 uses 8/3 of the width, divided by the "
                "number of chosen experts and rounded up to a multiple of 32.",
                Range::between(0, 1 << 20)});
    visit(Field{"rule",
                self.rule,
                "How router logits become the weights of the chosen experts: softmax over all "
                "experts, softmax_of_chosen over the chosen ones, sigmoid, divided by the sum "
                "over the chosen ones, or plain_sigmoid without this division. Empty uses the "
                "family's rule.",
                Range{},
                {"", kSoftmaxRule, kSoftmaxOfChosenRule, kSigmoidRule, kPlainSigmoidRule}});
    visit(Field{"layers", self.layers,
                "Layers with experts, one letter per layer, repeated: e with experts, f with a "
                "feed-forward branch. Empty: all layers have experts (qwen2_moe, qwen3_moe, "
                "qwen3_next, lfm2_moe)."}
              .spelled(expert_letters()));
    visit(Field{"shared_width", self.shared_width,
                "Inner width of the shared expert, which processes all tokens in addition; 0: no "
                "shared expert (qwen2_moe, qwen3_next, qwen3_5_moe).",
                Range::between(0, 1 << 20)});
    visit(Field{"gate_limit", self.gate_limit,
                "Limit of an expert's gates, clamped from above, and up-projections, clamped to "
                "±limit (gpt_oss); 0 uses the family's limit.",
                Range::at_least(0)});
    visit(constant("scale", self.scale));                    // factor of the weights (lfm2_moe)
    visit(constant("selection_bias", self.selection_bias));  // whether the folder has it (lfm2_moe)
    visit(Field{"balance_loss", self.balance_loss,
                "Factor α of the load-balancing loss α·E·Σ f·P, averaged over the layers. f is the "
                "share of tokens that an expert gets, and P its mean probability. Balanced loads "
                "give α·chosen; 0 disables the loss.",
                Range::at_least(0)});
    visit(Field{"bias_rate", self.bias_rate,
                "Step size, such as 0.001, of loss-free balancing; 0 disables it. Experts are "
                "chosen by score plus bias. After each step, the bias of an expert increases by "
                "this number if it got fewer tokens than the mean, and decreases if it got more. "
                "Such a model cannot be exported as a Hugging Face folder.",
                Range::at_least(0)});
    visit(Field{"z_loss", self.z_loss,
                "Factor of the router z-loss, the mean squared log-sum-exp of the router's logits, "
                "averaged over the layers. It keeps the logits small; 0 disables it.",
                Range::at_least(0)});
  }
};

/// Returns a warning if no loss trains the routers, otherwise "". `experts` must be resolved.
inline std::string untrained_router_warning(const ExpertConfig& experts) {
  const bool is_always_one = experts.count > 1 && experts.chosen == 1 &&
                             (experts.rule == kSoftmaxOfChosenRule || experts.rule == kSigmoidRule);
  if (!is_always_one || experts.balance_loss > 0 || experts.z_loss > 0) return "";
  return "each token goes to one expert, whose weight is always 1, so no loss trains the routers; "
         "choose at least 2 experts, or train with --set model.experts.balance_loss=0.01";
}

/// Returns whether a layer has experts according to ExpertConfig::layers.
inline bool has_experts(const ExpertConfig& experts, std::int64_t layer) {
  const std::string& layers = experts.layers;
  return experts.count > 0 &&
         (layers.empty() || layers[static_cast<std::size_t>(layer) % layers.size()] == 'e');
}

/// Returns the condition that model.mixers is empty or contains one of the letters.
inline KeyNeed layers_mixed_by(const std::vector<std::string>& letters, const std::string& why) {
  return KeyNeed::of({"model.mixers"}, letters, why, KeyTest::Kind::kHasOneOf);
}
inline KeyNeed layers_of_attention() {
  return layers_mixed_by({"a", "c"}, "model.mixers has no attention layer (a or c)");
}

/// Block pattern of sparse attention; see kernels::BlockPattern.
struct BlockPatternConfig {
  std::int64_t block = 64;
  std::int64_t local_blocks = 0;
  std::int64_t global_blocks = 0;
  std::int64_t random_blocks = 0;
  std::int64_t seed = 0;  // seed of the random blocks

  bool is_on() const { return local_blocks > 0; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"block", self.block, "Positions per block. Multiples of 64 are the fastest.",
                Range::between(1, 65536)}
              .unless("model.attention_pattern.local_blocks", {"0"}));
    visit(
        Field{"local_blocks", self.local_blocks,
              "Number of key blocks that a query block attends to, counted back from and including "
              "its own block. 0 disables the pattern: queries attend to all earlier keys.",
              Range::between(0, 65536)});
    visit(
        Field{"global_blocks", self.global_blocks,
              "Number of key blocks at the start of the sequence that all queries also attend to.",
              Range::between(0, 65536)});
    visit(Field{
        "random_blocks", self.random_blocks,
        "Number of random key blocks, between the global and the local ones, that a query block "
        "also attends to. They are spread evenly, and drawn for each layer, head and block.",
        Range::between(0, 1024)});
    visit(constant("seed", self.seed));
  }
};

/// Sizes of state-space mixers: Mamba-2 and Gated DeltaNet.
struct StateSpaceConfig {
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  std::int64_t groups = 1;
  std::int64_t state_size = 128;
  std::int64_t taps = 4;
  bool biases = false;
  bool convolution_bias = true;
  double least_step = 0;
  double most_step = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "heads", self.heads,
        "Heads of a state-space mixer (Gated DeltaNet: value heads); 0 uses 2·width/head_size.",
        Range::between(0, 4096)});
    visit(Field{"head_size", self.head_size,
                "Channels per head; 0 uses 64, or 32 if width is less than 512.",
                Range::between(0, 1024)});
    visit(Field{"groups", self.groups,
                "Number of groups of heads; the heads of a group share key B and query C (Gated "
                "DeltaNet: number of query and key heads). Must divide heads.",
                Range::between(1, 4096)});
    visit(Field{
        "state_size", self.state_size,
        "Size N of each key and query. Each head has a state of head_size·N numbers per text.",
        Range::between(1, 1024)});
    visit(Field{"taps", self.taps, "Width of the convolution before the scan, in tokens.",
                Range::between(1, 16)});
    visit(Field{"biases", self.biases,
                "Add biases to the products of the mixer (Mamba-2, Hydra, short convolution)."});
    visit(Field{"convolution_bias", self.convolution_bias,
                "Add a bias to the convolution of the mixer (Mamba-2, Hydra)."});
    visit(Field{"least_step", self.least_step, "Smallest step Δ of a token (Mamba-2).",
                Range::at_least(0)});
    visit(Field{"most_step", self.most_step,
                "Largest step Δ of a token (Mamba-2); 0 sets no limit.", Range::at_least(0)});
  }
};

/// Sizes of the semiseparable (T + U·Vᵀ) and BK core mixers.
struct SemiseparableConfig {
  std::int64_t rank = 8;
  std::int64_t potentials = 8;
  // BK core: imaginary part of z in (T − z·I)⁻¹. Smaller values have a longer range.
  double imaginary = 1;
  double limit = 3;  // BK core: potentials are clamped to [−limit, limit]

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(
        Field{"rank", self.rank,
              "Columns of U and V in each head's matrix T + U·Vᵀ; at most the context.",
              Range::between(1, 1024)}
            .needs_any(layers_mixed_by({"t", "p"}, "model.mixers has no T + U·Vᵀ layer (t or p)")));
    visit(Field{"potentials", self.potentials,
                "Number of matrices T in a BK core. For each matrix, a token has one potential and "
                "gets a real and an imaginary result.",
                Range::between(1, 4096)}
              .needs_any(layers_mixed_by({"b"}, "model.mixers has no BK core layer (b)")));
    visit(constant("imaginary", self.imaginary));
    visit(constant("limit", self.limit));
  }
};

/// Sizes of an encoder whose output a decoder reads by cross attention. Both have the same width.
struct EncoderConfig {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t context = 0;
  std::int64_t features = 0;
  std::int64_t source_length = 0;

  /// Returns whether the encoder reads tokens; otherwise it reads audio, or there is none.
  bool reads_tokens() const { return context > 0 && features == 0; }
  /// Returns the number of positions that a batch has for each source.
  std::int64_t source_places() const { return source_length > 0 ? source_length : context; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"layers", self.layers, "Number of encoder blocks; 0 uses the decoder's number.",
                Range::between(0, 1000)});
    visit(Field{"heads", self.heads,
                "Attention heads per encoder block; 0 uses the decoder's number.",
                Range::between(0, 1024)});
    visit(Field{"intermediate_size", self.intermediate_size,
                "Inner width of the encoder's feed-forward branch, in channels; 0 uses the "
                "decoder's width.",
                Range::between(0, 1 << 20)});
    visit(Field{"context", self.context,
                "Maximum length of the encoder's sequence. whisper: positions of 20 ms; 0 uses "
                "1500, which is 30 s. bart: tokens; 0 uses the decoder's context.",
                Range::between(0, 1 << 20)});
    visit(Field{"features", self.features, "Mel bands per audio frame; 0 uses 80.",
                Range::between(0, 1024)});
    visit(Field{"source_length", self.source_length,
                "Tokens of a source in training (bart). Shorter sources are padded; longer sources "
                "are truncated at the end. 0 uses the encoder's context. `hybrid finetune` sets "
                "the length of the longest source.",
                Range::between(0, 1 << 20)});
  }
};

/// A linear layer over pooled vectors, y = activation(W·x + b), as in sentence-transformers.
struct DenseLayer {
  std::int64_t outputs = 0;
  bool has_bias = false;
  std::string activation = "identity";  // or "tanh", "gelu" (with erf)
  friend bool operator==(const DenseLayer&, const DenseLayer&) = default;
};
/// Formats the layers like model.dense.
std::string text_of(const std::vector<DenseLayer>& layers);

/// A model's family and shape. Families may not support all keys (see ModelFamily).
struct ModelConfig {
  std::string family = "gpt2";
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t context = 1024;
  std::int64_t vocabulary = 0;
  double dropout = 0.0;
  std::optional<double> initializer_range{};
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t intermediate_size = 0;
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
  bool bidirectional = false;
  bool language_head = true;
  std::int64_t token_types = 0;
  StateSpaceConfig state_space{};
  SemiseparableConfig semiseparable{};
  double rotary_share = 1;
  double embedding_scale = 1;
  double residual_scale = 1;
  double logit_scale = 1;
  EncoderConfig encoder{};
  Gemma4Config gemma4{};
  TridentConfig trident{};
  SeriesConfig series{};
  VisionConfig vision{};
  std::string pooling{};
  std::string dense{};
  std::vector<ClassLabel> labels{};
  std::string problem_type{};  // transformers' problem_type in config.json

  /// Returns whether a key belongs to the model's family, a related family or only other families.
  /// An unknown family has all keys.
  KeyOwner owner_of(std::string_view key) const;
  /// Parses `dense`. Invalid layers have 0 outputs.
  std::vector<DenseLayer> dense_layers() const;
  /// Returns the number of channels of a text's embedding.
  std::int64_t embedding_width() const;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"family", self.family,
                "Model family, such as gpt2, llama or qwen3; docs/CONFIG.md lists all families."}
              .essential(Question::kModel));
    visit(Field{"layers", self.layers, "Number of transformer blocks.", Range::between(1, 1000)}
              .essential(Question::kModel));
    visit(Field{"heads", self.heads,
                "Number of attention heads; must divide width unless head_size is given.",
                Range::between(1, 1024)}
              .essential(Question::kModel));
    visit(Field{"width", self.width, "Width C of the residual stream, in channels.",
                Range::between(1, 65536)}
              .essential(Question::kModel));
    visit(Field{"context", self.context, "Maximum sequence length of the model, in positions.",
                Range::between(1, 1 << 20)}
              .essential(Question::kModel));
    visit(Field{"vocabulary", self.vocabulary,
                "Vocabulary size in tokens; 0 uses the size of the data's tokenizer.",
                Range::between(0, 1 << 24)});
    visit(Field{"dropout", self.dropout,
                "Dropout probability of the outputs of the embedding and of both branches, in "
                "training only.",
                Range::fraction()});
    visit(Field{"initializer_range", self.initializer_range,
                "Standard deviation of the initial weights. The last product of each branch "
                "divides it by √(2·layers). If left out, it is 0.02, and matrices of models "
                "narrower than 768 multiply it by √(768/width).",
                Range{0, 1, true, false}});
    visit(Field{"kv_heads", self.kv_heads,
                "Number of key and value heads (grouped-query attention); must divide heads. "
                "heads/kv_heads query heads share each of them; 0 uses heads.",
                Range::between(0, 1024)}
              .needs_any(layers_of_attention()));
    visit(Field{"head_size", self.head_size,
                "Channels per attention head, an even number; 0 uses width/heads.",
                Range::between(0, 1024)});
    visit(Field{"intermediate_size", self.intermediate_size,
                "Inner width of the feed-forward branch, in channels; 0 uses 8/3 of the width, "
                "rounded up to a multiple of 64.",
                Range::between(0, 1 << 20)});
    visit(Field{"experts", self.experts,
                "A mixture of experts in place of the feed-forward branch."});
    visit(Field{"norm_epsilon", self.norm_epsilon,
                "Epsilon that LayerNorm adds to the variance and RMSNorm to the mean square.",
                Range::between(1e-12, 1)});
    visit(Field{"rope_theta", self.rope_theta, "Base of the rotary angles of queries and keys.",
                Range::between(1, 1e12)}
              .needs_any(layers_of_attention()));
    visit(Field{"rope_scaling", self.rope_scaling,
                "Scaling of rotary angles for contexts longer than the original one."}
              .needs_any(layers_of_attention()));
    visit(Field{"tied_head", self.tied_head,
                "Share the token embedding table with the output head."});
    visit(Field{"attention_bias", self.attention_bias,
                "Add biases to the products of attention. In qwen2, queries, keys and values "
                "always have them."});
    visit(
        Field{"mlp_bias", self.mlp_bias, "Add biases to the products of the feed-forward branch."});
    visit(Field{"window", self.window,
                "Sliding window: number of keys that a query attends to, including its own; 0: all "
                "earlier keys. Applies to the layers of window_layers or, in models with other "
                "mixers, to all attention layers.",
                Range::between(0, 1 << 24)}
              .needs_any(layers_of_attention()));
    visit(
        Field{"window_layers", self.window_layers,
              "Layers with the sliding window, one letter per layer, repeated: w with the window, "
              "a without; in smollm3 and exaone4 also v and n, the same without rotary positions. "
              "Empty uses the family's pattern: w; gemma2 wa; gemma3 wwwwwa; olmo3 wwwa; smollm3 "
              "aaan; exaone4 wwwn."}
            .spelled(window_letters()));
    visit(Field{"window_rope_theta", self.window_rope_theta,
                "rope_theta of the layers with a window, which use no rope_scaling; 0 uses "
                "10000, in olmo3 500000.",
                Range::between(0, 1e12)});
    visit(Field{"attention_pattern", self.attention_pattern,
                "Block-sparse attention, in place of a window."}
              .needs_any(layers_of_attention()));
    visit(Field{
        "query_scalar", self.query_scalar,
        "Attention scores are divided by the square root of this value; 0 uses the head size.",
        Range::at_least(0)});
    visit(Field{"attention_cap", self.attention_cap,
                "Soft cap c of attention scores: a score s becomes c·tanh(s/c); 0 disables it.",
                Range::at_least(0)});
    visit(Field{"query_key_value_limit", self.query_key_value_limit,
                "Clamp queries, keys and values to [−limit, limit] (olmoe); 0 disables it.",
                Range::at_least(0)});
    visit(Field{"logit_cap", self.logit_cap,
                "Soft cap c of logits: a logit s becomes c·tanh(s/c); 0 disables it.",
                Range::at_least(0)});
    visit(Field{"mixers", self.mixers,
                "Token mixer of each layer, one letter per layer, repeated: a attention, m "
                "Mamba-2, d Gated DeltaNet, s gated short convolution; in semiseparable also c "
                "attention after a short convolution, t T + U·Vᵀ computed from tokens, p T + "
                "U·Vᵀ by position, and in encoders h Hydra, b BK core. Empty uses the family's "
                "pattern: mamba2 m; granitemoehybrid and bamba mmma; qwen3_5, qwen3_5_moe and "
                "qwen3_next ddda; lfm2 and lfm2_moe ssa; semiseparable t."}
              .spelled(mixer_letters()));
    visit(Field{"bidirectional", self.bidirectional,
                "Make the model an encoder: each token also sees the tokens after it, and the "
                "model cannot generate text (semiseparable and gemma3; always in bert, distilbert, "
                "roberta, xlm-roberta and modernbert)."});
    visit(constant("language_head", self.language_head));
    visit(constant("token_types", self.token_types, Range::between(0, 1024)));
    visit(Field{"state_space", self.state_space,
                "Sizes of the recurrent mixers Mamba-2, Gated DeltaNet and Hydra; taps and biases "
                "also apply to short convolutions, and taps to the convolution of attention."}
              .needs_any(
                  layers_mixed_by({"m", "d", "h", "s", "c"},
                                  "model.mixers has no layer that uses it (m, d, h, s or c)")));
    visit(Field{"semiseparable", self.semiseparable, "Sizes of the T + U·Vᵀ and BK core mixers."});
    visit(Field{"rotary_share", self.rotary_share,
                "Share of each head's channels, from the first one on, to which rotary positions "
                "apply; 0: none, so that only other mixers encode positions.",
                Range::between(0, 1)}
              .needs_any(layers_of_attention()));
    visit(Field{"embedding_scale", self.embedding_scale,
                "Factor applied to the token embeddings at the input of the first layer.",
                Range::above(0)});
    visit(Field{
        "residual_scale", self.residual_scale,
        "Factor applied to the output of each branch when it is added to the residual stream.",
        Range::above(0)});
    visit(Field{"logit_scale", self.logit_scale, "Factor applied to the logits.", Range::above(0)});
    visit(Field{
        "encoder", self.encoder,
        "Sizes of the encoder that the decoder reads through cross attention (whisper, bart)."});
    visit(Field{"gemma4", self.gemma4, "Sizes of Gemma 4's layers, which a folder sets (gemma4)."});
    visit(Field{"trident", self.trident,
                "Sizes of the sensors and of the parts that process them (trident)."});
    visit(Field{"series", self.series,
                "Table of the time series that the model learns from (series)."});
    visit(Field{"vision", self.vision, "Image size and patches (vit)."});
    visit(Field{"pooling",
                self.pooling,
                "Pooling of a text's hidden states to one vector, in place of the language head. "
                "cls: the first token's; last: the last token's; mean: the mean over all tokens. "
                "`hybrid finetune --task` sets it. Empty: no pooling.",
                Range{},
                {"", "cls", "mean", "last"}});
    visit(Field{"dense", self.dense,
                "Linear layers between pooling and embedding, separated by commas. Each is a "
                "number of outputs, then bias and an activation (tanh, gelu) if it has them, such "
                "as 3072,256 bias tanh. "
                "`hybrid finetune --task embed` sets it from the folder."});
    visit(Field{"labels", self.labels,
                "Classes in the order of the logits. If left out, the classes of the data."});
    visit(constant("problem_type", self.problem_type));
  }
};

/// Returns `model` with the training settings of `requested`, and with context and rope_scaling if
/// `keys` contains them. Throws ConfigError if the model does not use rotary positions.
ModelConfig with_training_of(ModelConfig model, const ModelConfig& requested,
                             const std::vector<std::string>& keys = {});

}  // namespace hybrid_trainer
