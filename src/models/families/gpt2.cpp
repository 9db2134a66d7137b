#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "src/models/families/families.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kGpt2Vocabulary = 50257;

std::unique_ptr<LanguageModel> gpt2_make(const ModelConfig& config, std::uint64_t seed,
                                         const Stream& stream) {
  const auto files = [](const char* first) {
    return ProductFiles{.first = {first}, .last = "c_proj", .transposed = true};
  };
  Attention::Spec attention{.width = config.width,
                            .heads = static_cast<int>(config.heads),
                            .head_size = config.width / config.heads,
                            .files = files("c_attn")};
  set_block_pattern(attention, config);
  const FeedForward::Spec feed_forward{
      .width = config.width, .intermediate_size = 4 * config.width, .files = files("c_fc")};
  const LayerSpec layer{
      {.name = "attn", .norm = "ln_1", .make = branch_of<Attention>(attention)},
      {.name = "mlp", .norm = "ln_2", .make = branch_of<FeedForward>(feed_forward)}};
  const DecoderSpec spec{
      .residual = {.width = config.width, .dropout = static_cast<float>(config.dropout)},
      .kinds = {{'a', layer}},
      .pattern = "a",
      .positions = config.context,
      .deviations = default_deviations(config)};
  return std::make_unique<Decoder>(config, spec, seed, stream);
}

void gpt2_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.heads > 0 && config.width % config.heads != 0) {
    problems.push_back(concat("model.heads: got ", config.heads,
                              ", which does not divide model.width ", config.width));
  }
  collect_block_pattern_problems(config, problems);
}

std::vector<ModelPreset> gpt2_presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width,
                        std::int64_t context) {
    return ModelConfig{.layers = layers, .heads = heads, .width = width, .context = context};
  };
  return {
      {"tiny", shape(4, 4, 128, 64), 16, 64, "muon", 1e-2},
      {"small", shape(4, 4, 256, 256), 8, 256, "muon", 1e-2},
      {"gpt2-124m", shape(12, 12, 768, 1024), 4, 1024, "adamw", 6e-4, kGpt2Vocabulary},
      {"gpt2-350m", shape(24, 16, 1024, 1024), 4, 1024, "adamw", 3e-4, kGpt2Vocabulary},
      {"gpt2-774m", shape(36, 20, 1280, 1024), 2, 1024, "adamw", 2.5e-4, kGpt2Vocabulary},
      {"gpt2-1558m", shape(48, 25, 1600, 1024), 1, 1024, "adamw", 2e-4, kGpt2Vocabulary},
  };
}

void gpt2_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("n_layer", model.layers);
  keys.member("n_head", model.heads);
  keys.member("n_embd", model.width);
  keys.member("n_positions", model.context);
  keys.member("vocab_size", model.vocabulary);
  if (!keys.fit(model)) return;
  keys.derived("n_inner", 4 * model.width);
  keys.write_only("n_ctx", model.context);
  keys.write_only("embd_pdrop", model.dropout);
  keys.write_only("resid_pdrop", model.dropout);
  keys.write_only("attn_pdrop", 0.0);
  keys.write_only("initializer_range", model.initializer_range.value_or(0.02));
  keys.fixed("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.fixed("layer_norm_epsilon", {1e-5});
  keys.fixed("scale_attn_weights", {true});
  keys.fixed("scale_attn_by_inverse_layer_idx", {false});
  keys.fixed("reorder_and_upcast_attn", {false});
  keys.fixed("tie_word_embeddings", {true});
  keys.fixed("add_cross_attention", {false});
}

}  // namespace

ModelFamily gpt2_family() {
  return {.name = "gpt2",
          .title = "GPT-2",
          .keys = {"heads", "dropout", "initializer_range", "attention_pattern"},
          .collect_problems = gpt2_collect_problems,
          .make = gpt2_make,
          .presets = gpt2_presets(),
          .hugging_face = HuggingFaceLayout{.model_type = "gpt2",
                                            .architecture = "GPT2LMHeadModel",
                                            .prefix = "transformer.",
                                            .keys = gpt2_keys,
                                            .tied_head = "wte.weight",
                                            .ignored = {".attn.bias", ".attn.masked_bias"}},
          .gguf = GgufLayout{.architecture = "gpt2"}};
}

}  // namespace hybrid_trainer
