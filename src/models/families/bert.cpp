#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "src/models/families/decoder_parts.h"
#include "src/models/families/families.h"

namespace hybrid_trainer {

namespace {

struct PostNormEncoder {
  struct Files {
    std::string layers = "encoder.layer";
    std::string attention = "attention", query = "self.query", key = "self.key",
                value = "self.value", output = "output.dense",
                attention_norm = "attention.output.LayerNorm";
    std::string feed_forward{}, up = "intermediate.dense", down = "output.dense",
                                feed_forward_norm = "output.LayerNorm";
  };
  /// Names of the language head's tensors, without a prefix.
  struct Head {
    std::string all;  // beginning of all their names
    std::string dense, norm, bias;
    std::vector<CopyInFiles> copies;
  };
  const char *name, *title, *architecture, *prefix;
  Head head;
  TextHead::Spec text_head;
  void (*keys)(ConfigKeys& keys, ModelConfig& model);
  std::vector<ModelPreset> presets;
  Files files{};
  std::int64_t first_position = 0;
  double fixed_epsilon = 0;  // of norms; 0: model.norm_epsilon
  bool has_types = true;
};

LayerSpec layer_of(const PostNormEncoder& kind, const ModelConfig& config) {
  const PostNormEncoder::Files& files = kind.files;
  const Attention::Spec attention{
      .width = config.width,
      .heads = static_cast<int>(config.heads),
      .head_size = config.width / config.heads,
      .bidirectional = true,
      .files = {.first = {files.query, files.key, files.value}, .last = files.output}};
  const FeedForward::Spec feed_forward{.width = config.width,
                                       .intermediate_size = config.intermediate_size,
                                       .exact_gelu = true,
                                       .files = {.first = {files.up}, .last = files.down}};
  return {{.name = {"attn", files.attention},
           .norm = {"ln_1", files.attention_norm},
           .make = branch_of<Attention>(attention)},
          {.name = {"mlp", files.feed_forward},
           .norm = {"ln_2", files.feed_forward_norm},
           .make = branch_of<FeedForward>(feed_forward)}};
}

std::unique_ptr<LanguageModel> make_encoder(const PostNormEncoder& kind, const ModelConfig& config,
                                            std::uint64_t seed, const Stream& stream) {
  const double epsilon = kind.fixed_epsilon > 0 ? kind.fixed_epsilon : config.norm_epsilon;
  const NormSpec norm{.epsilon = static_cast<float>(epsilon)};
  const std::string embeddings = "embeddings.";
  TextHead::Spec text_head = kind.text_head;
  text_head.transform->width = config.width;
  const DecoderSpec spec{
      .residual = {.width = config.width,
                   .norm = norm,
                   .dropout = static_cast<float>(config.dropout),
                   .post_norm = true},
      .kinds = {{'a', layer_of(kind, config)}},
      .pattern = "a",
      .positions = config.context,
      .first_position = kind.first_position,
      .embedding_norm = true,
      .final_norm = false,
      .head_bias = DecoderSpec::Bias::kTrained,
      .head_transform = HeadTransform::Spec{.width = config.width,
                                            .dense = {"lm_head.dense", kind.head.dense},
                                            .norm = {"lm_head.norm", kind.head.norm},
                                            .norm_kind = norm},
      .token_types = config.token_types,
      .deviations = default_deviations(config),
      .text_head = text_head,
      .files = {.layers = kind.files.layers,
                .tokens = embeddings + "word_embeddings",
                .positions = embeddings + "position_embeddings",
                .types = embeddings + "token_type_embeddings",
                .embedding_norm = embeddings + "LayerNorm",
                .head_bias = kind.head.bias}};
  return std::make_unique<Decoder>(config, spec, seed, stream);
}

ModelConfig resolved_encoder(const ModelConfig& given) {
  ModelConfig config = given;
  if (config.intermediate_size == 0) config.intermediate_size = 4 * config.width;
  return config;
}

void collect_encoder_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.heads > 0 && config.width % config.heads != 0)
    problems.push_back(concat("model.heads: got ", config.heads,
                              ", which does not divide model.width ", config.width));
  collect_direction_problem(config, problems);
}

ModelFamily encoder_family(const PostNormEncoder& kind) {
  std::vector<std::string> keys{"heads", "dropout", "initializer_range", "intermediate_size",
                                "bidirectional"};
  if (kind.fixed_epsilon == 0) keys.emplace_back("norm_epsilon");
  if (kind.has_types) keys.emplace_back("token_types");
  return {.name = kind.name,
          .title = kind.title,
          .keys = keys,
          .collect_problems = collect_encoder_problems,
          .resolved = resolved_encoder,
          .make = [kind](const ModelConfig& config, std::uint64_t seed,
                         const Stream& stream) { return make_encoder(kind, config, seed, stream); },
          .presets = kind.presets,
          .hugging_face =
              HuggingFaceLayout{.model_type = kind.name,
                                .architecture = kind.architecture,
                                .prefix = kind.prefix,
                                .keys = kind.keys,
                                .tied_head = "embeddings.word_embeddings.weight",
                                .ignored = {"embeddings.position_ids", "embeddings.token_type_ids"},
                                .carried = {"pooler.", "cls.seq_relationship."},
                                .head = {kind.head.all},
                                .head_copies = kind.head.copies},
          .gguf = GgufLayout{.architecture = "bert"},
          .purpose = {"fill-mask", "A masked language model", ""}};
}

ModelConfig base_shape(const char* family, std::int64_t layers, double epsilon,
                       std::int64_t types) {
  return {.family = family,
          .layers = layers,
          .heads = 12,
          .width = 768,
          .context = 512,
          .norm_epsilon = epsilon,
          .bidirectional = true,
          .token_types = types};
}

void fixed_keys(ConfigKeys& keys, ModelConfig& model) {
  model.bidirectional = true;
  keys.fixed("is_decoder", {false});
  keys.fixed("add_cross_attention", {false});
  keys.fixed("tie_word_embeddings", {true});
}

/// `first_position`: number of unused first rows of the position table. max_position_embeddings
/// includes these rows.
void bert_like_keys(ConfigKeys& keys, ModelConfig& model, std::int64_t first_position,
                    std::int64_t missing_types) {
  keys.member("num_hidden_layers", model.layers);
  keys.member("num_attention_heads", model.heads);
  keys.member("hidden_size", model.width);
  keys.member("intermediate_size", model.intermediate_size, 3072);
  keys.member("vocab_size", model.vocabulary);
  std::int64_t rows = model.context + first_position;
  keys.member("max_position_embeddings", rows, 512);
  model.context = rows - first_position;
  keys.member("type_vocab_size", model.token_types, static_cast<double>(missing_types));
  keys.member("layer_norm_eps", model.norm_epsilon, 1e-12);
  if (!keys.fit(model)) return;
  keys.fixed("hidden_act", {"gelu"});
  keys.fixed("position_embedding_type", {"absolute"});
  keys.write_only("hidden_dropout_prob", model.dropout);
  keys.write_only("attention_probs_dropout_prob", 0.0);
  keys.write_only("initializer_range", model.initializer_range.value_or(0.02));
  fixed_keys(keys, model);
}

void bert_keys(ConfigKeys& keys, ModelConfig& model) { bert_like_keys(keys, model, 0, 2); }

constexpr std::int64_t kRobertaPadding = 1, kRobertaFirstPosition = kRobertaPadding + 1;

void roberta_keys(ConfigKeys& keys, ModelConfig& model) {
  bert_like_keys(keys, model, kRobertaFirstPosition, 2);
  keys.fixed("pad_token_id", {kRobertaPadding});
}

void distilbert_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("n_layers", model.layers);
  keys.member("n_heads", model.heads);
  keys.member("dim", model.width);
  keys.member("hidden_dim", model.intermediate_size, 3072);
  keys.member("vocab_size", model.vocabulary);
  keys.member("max_position_embeddings", model.context, 512);
  if (!keys.fit(model)) return;
  keys.inert({"sinusoidal_pos_embds", "tie_weights_"});
  keys.write_only("qa_dropout", 0.1);
  keys.write_only("seq_classif_dropout", 0.2);
  keys.fixed("activation", {"gelu"});
  keys.write_only("dropout", model.dropout);
  keys.write_only("attention_dropout", 0.0);
  keys.write_only("initializer_range", model.initializer_range.value_or(0.02));
  fixed_keys(keys, model);
}

PostNormEncoder roberta(const char* name, const char* title, const char* architecture,
                        std::int64_t types, const char* preset, std::int64_t vocabulary) {
  return {
      .name = name,
      .title = title,
      .architecture = architecture,
      .prefix = "roberta.",
      .head = {.all = "lm_head.",
               .dense = "lm_head.dense",
               .norm = "lm_head.layer_norm",
               .bias = "lm_head.bias",
               .copies = {{"lm_head.decoder.weight", ""},
                          {"lm_head.decoder.bias", "lm_head.bias"}}},
      .text_head =
          TextHead::Spec{
              .transform = HeadTransform::Spec{.dense = "classifier.dense",
                                               .activation = HeadTransform::Activation::kTanh},
              .head = "classifier.out_proj",
              .head_bias = true},
      .keys = roberta_keys,
      .presets = {{preset, base_shape(name, 12, 1e-5, types), 4, 128, "adamw", 1e-4, vocabulary}},
      .first_position = kRobertaFirstPosition};
}

}  // namespace

ModelFamily bert_family() {
  return encoder_family(
      {.name = "bert",
       .title = "BERT",
       .architecture = "BertForMaskedLM",
       .prefix = "bert.",
       .head = {.all = "cls.predictions.",
                .dense = "cls.predictions.transform.dense",
                .norm = "cls.predictions.transform.LayerNorm",
                .bias = "cls.predictions.bias",
                .copies = {{"cls.predictions.decoder.weight", ""},
                           {"cls.predictions.decoder.bias", "cls.predictions.bias"}}},
       .text_head =
           TextHead::Spec{
               .transform = HeadTransform::Spec{.dense = {"pooler", "pooler.dense"},
                                                .activation = HeadTransform::Activation::kTanh,
                                                .prefixed = true},
               .head = "classifier",
               .head_bias = true},
       .keys = bert_keys,
       .presets = {{"bert-base", base_shape("bert", 12, 1e-12, 2), 4, 128, "adamw", 1e-4, 30522}}});
}

ModelFamily distilbert_family() {
  ModelConfig shape = base_shape("distilbert", 6, ModelConfig{}.norm_epsilon, 0);
  return encoder_family(
      {.name = "distilbert",
       .title = "DistilBERT",
       .architecture = "DistilBertForMaskedLM",
       .prefix = "distilbert.",
       .head = {.all = "vocab_",
                .dense = "vocab_transform",
                .norm = "vocab_layer_norm",
                .bias = "vocab_projector.bias",
                .copies = {{"vocab_projector.weight", ""}}},
       .text_head =
           TextHead::Spec{
               .transform = HeadTransform::Spec{.dense = "pre_classifier",
                                                .activation = HeadTransform::Activation::kRelu},
               .head = "classifier",
               .head_bias = true},
       .keys = distilbert_keys,
       .presets = {{"distilbert-base", shape, 4, 128, "adamw", 1e-4, 30522}},
       .files = {.layers = "transformer.layer",
                 .query = "q_lin",
                 .key = "k_lin",
                 .value = "v_lin",
                 .output = "out_lin",
                 .attention_norm = "sa_layer_norm",
                 .feed_forward = "ffn",
                 .up = "lin1",
                 .down = "lin2",
                 .feed_forward_norm = "output_layer_norm"},
       .fixed_epsilon = 1e-12,
       .has_types = false});
}

ModelFamily roberta_family() {
  return encoder_family(
      roberta("roberta", "RoBERTa", "RobertaForMaskedLM", 1, "roberta-base", 50265));
}

ModelFamily xlm_roberta_family() {
  return encoder_family(roberta("xlm-roberta", "XLM-RoBERTa", "XLMRobertaForMaskedLM", 1,
                                "xlm-roberta-base", 250002));
}

}  // namespace hybrid_trainer
