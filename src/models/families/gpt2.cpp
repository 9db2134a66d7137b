#include "src/models/families/families.h"

#include "hybrid_trainer/models/decoder.h"

namespace hybrid_trainer {
namespace {

constexpr float kNormEpsilon = 1e-5f;
constexpr std::int64_t kVocabulary = 50257;

DecoderSpec spec_of(const ModelConfig& config) {
  return {.block = {.width = config.width,
                    .heads = static_cast<int>(config.heads),
                    .head_size = config.width / config.heads,
                    .inner_width = 4 * config.width,
                    .dropout = static_cast<float>(config.dropout),
                    .norm_epsilon = kNormEpsilon},
          .deviations = usual_deviations(config)};
}

std::unique_ptr<LanguageModel> make(const ModelConfig& config, std::uint64_t seed,
                                    const Stream& stream) {
  return std::make_unique<Decoder>(config, spec_of(config), seed, stream);
}

double step_flops(const ModelConfig& config, std::int64_t batch, std::int64_t time) {
  return decoder_step_flops(config, spec_of(config), batch, time);
}

double recomputed_flops(const ModelConfig& config, std::int64_t batch, std::int64_t time,
                        double share, Rebuild least) {
  return decoder_recomputed_flops(config, spec_of(config), batch, time, share, least);
}

void collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.heads > 0 && config.width % config.heads != 0) {
    problems.push_back(concat("model.heads: got ", config.heads,
                              ", which does not divide model.width ", config.width));
  }
}

std::vector<ModelPreset> presets() {
  const auto shape = [](std::int64_t layers, std::int64_t heads, std::int64_t width,
                        std::int64_t context) {
    ModelConfig model;
    model.layers = layers;
    model.heads = heads;
    model.width = width;
    model.context = context;
    return model;
  };
  return {
      {"tiny", shape(4, 4, 128, 64), 16, 64, "muon", 1e-2},
      {"small", shape(4, 4, 256, 256), 8, 256, "muon", 1e-2},
      {"gpt2-124m", shape(12, 12, 768, 1024), 4, 1024, "adamw", 6e-4, kVocabulary},
      {"gpt2-350m", shape(24, 16, 1024, 1024), 4, 1024, "adamw", 3e-4, kVocabulary},
      {"gpt2-774m", shape(36, 20, 1280, 1024), 2, 1024, "adamw", 2.5e-4, kVocabulary},
      {"gpt2-1558m", shape(48, 25, 1600, 1024), 1, 1024, "adamw", 2e-4, kVocabulary},
  };
}

using Fixed = HuggingFaceLayout::Fixed;

std::vector<Fixed> derived_keys(const ModelConfig& config) {
  return {{"n_inner", {4 * config.width}}};
}

std::vector<Fixed> written_keys(const ModelConfig& config) {
  return {{"n_ctx", {config.context}},
          {"embd_pdrop", {config.dropout}},
          {"resid_pdrop", {config.dropout}},
          {"attn_pdrop", {0.0}},
          {"initializer_range", {config.initializer_range.value_or(0.02)}}};
}

/// Parameters have Hugging Face's names, so only layout and padding differ.
std::vector<FileTensor> file_tensors(const Parameter& parameter, const ModelConfig& config) {
  static constexpr const char* kConv1d[] = {".attn.c_attn.weight", ".attn.c_proj.weight",
                                            ".mlp.c_fc.weight", ".mlp.c_proj.weight"};
  const std::string& name = parameter.name();
  const Shape& shape = parameter.shape();
  for (const char* ending : kConv1d) {
    if (name.ends_with(ending)) return {{name, {shape[1], shape[0]}, true}};
  }
  if (name == "wte.weight") return {{name, {config.vocabulary, config.width}}};
  return {{name, shape}};
}

HuggingFaceLayout hugging_face() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .prefix = "transformer.",
          .members = {{"n_layer", &ModelConfig::layers},
                      {"n_head", &ModelConfig::heads},
                      {"n_embd", &ModelConfig::width},
                      {"n_positions", &ModelConfig::context},
                      {"vocab_size", &ModelConfig::vocabulary}},
          .fixed = {{"activation_function",
                     {std::string("gelu_new"), std::string("gelu_pytorch_tanh")}},
                    {"layer_norm_epsilon", {1e-5}},
                    {"scale_attn_weights", {true}},
                    {"scale_attn_by_inverse_layer_idx", {false}},
                    {"reorder_and_upcast_attn", {false}},
                    {"tie_word_embeddings", {true}},
                    {"add_cross_attention", {false}}},
          .derived = derived_keys,
          .written = written_keys,
          .tensors = file_tensors,
          .tied_head = "wte.weight",
          .ignored = {".attn.bias", ".attn.masked_bias"}};
}

}  // namespace

ModelFamily gpt2_family() {
  return {.name = "gpt2",
          .title = "GPT-2",
          .keys = {"heads", "dropout", "initializer_range"},
          .collect_problems = collect_problems,
          .make = make,
          .step_flops = step_flops,
          .recomputed_flops = recomputed_flops,
          .presets = presets(),
          .hugging_face = hugging_face()};
}

}  // namespace hybrid_trainer
