#include <algorithm>

#include "hybrid_trainer/models/decoder.h"
#include "src/models/families/families.h"
#include "src/models/families/hybrid_decoder.h"
#include "src/models/hugging_face/config_reader.h"
#include "src/models/hugging_face/layer_keys.h"

namespace hybrid_trainer {

namespace {

constexpr const char *kLayerTypes = "layer_types", *kAttentionIndices = "full_attn_idxs",
                     *kDenseLayers = "num_dense_layers";

ProductFiles lfm2_attention_files(const ModelConfig&) {
  return {.first = {"q_proj", "k_proj", "v_proj"}, .last = "out_proj"};
}

HybridDecoder lfm2(const char* name, const char* title) {
  return {.name = name,
          .title = title,
          .letters = "sa",
          .pattern = "ssa",
          .query_key_norm = true,
          .rotates_all_or_none = true,
          .shared_expert = HybridDecoder::SharedExpert::kNone,
          .files = HybridDecoder::Files{
              .final_norm = "embedding_norm",
              .mixer = "conv",
              .mixer_norm = "operator_norm",
              .mixer_products = state_space_files,
              .attention = lfm2_attention_files,
              .query_key_norm = "layernorm",
              .mlp = "feed_forward",
              .mlp_norm = "ffn_norm",
              .mlp_products = ProductFiles{.first = {"w1", "w3"}, .last = "w2"},
              .mixture = "feed_forward",
              .mixture_products = ExpertMixture::Files{.first = {"experts.{}.w1", "experts.{}.w3"},
                                                       .last = "experts.{}.w2"}}};
}

/// Reads the layers with attention from layer_types or full_attn_idxs; without either, all layers
/// have attention if `default_is_attention`.
void read_mixers(ConfigReader& reader, ModelConfig& model, bool default_is_attention) {
  const json::value *types = reader.find(kLayerTypes), *indices = reader.find(kAttentionIndices);
  std::string letters(static_cast<std::size_t>(model.layers), 'a');
  if (types != nullptr) {
    letters =
        letters_of_layers(reader, *types, model.layers, {{"conv", 's'}, {"full_attention", 'a'}});
  } else if (indices != nullptr) {
    letters.assign(letters.size(), 's');
    set_letters(reader, kAttentionIndices, *indices, 'a', letters);
  } else if (!default_is_attention) {
    reader.problem(concat(kLayerTypes, " is missing"));
  }
  model.mixers = repeating_pattern(letters);
}

void lfm2_mixer_keys(ConfigKeys& keys, ModelConfig& model, bool default_is_attention) {
  keys.member("conv_L_cache", model.state_space.taps, 3);
  keys.member("conv_bias", model.state_space.biases, 0);
  if (ConfigReader* const reader = keys.reader())
    return read_mixers(*reader, model, default_is_attention);
  json::array types;
  for (std::int64_t i = 0; i < model.layers; ++i)
    types.emplace_back(kind_of_layer(model.mixers, i) == 'a' ? "full_attention" : "conv");
  keys.written()[kLayerTypes] = std::move(types);
}

void lfm2_sizes(ConfigKeys& keys, ModelConfig& model) {
  keys.member("num_hidden_layers", model.layers);
  keys.member("num_attention_heads", model.heads);
  keys.member("hidden_size", model.width);
  keys.member("vocab_size", model.vocabulary);
  if (ConfigReader* const reader = keys.reader()) {
    reader->read(model.tied_head, "tie_embedding|tie_word_embeddings", 1);
  } else {
    keys.member("tie_word_embeddings", model.tied_head);
  }
  keys.member("num_key_value_heads", model.kv_heads, 8);
  keys.member("head_dim", model.head_size, 0);
  keys.member("max_position_embeddings", model.context, 128000);
  keys.member("norm_eps", model.norm_epsilon, 1e-5);
}

void lfm2_last_keys(ConfigKeys& keys, ModelConfig& model) {
  rotary_keys(keys, model, {.theta = 1e6});
  if (keys.reader() == nullptr && model.rotary_share != 1)
    throw DataError(concat("a folder of an ", model.family,
                           " model cannot store model.rotary_share=", model.rotary_share,
                           ": readers rotate all channels of a head"));
  keys.write_only("initializer_range", model.initializer_range.value_or(0.02));
}

/// Returns the inner width that transformers derives from a file's intermediate_size.
std::int64_t adjusted_width(std::int64_t size, double factor, std::int64_t multiple) {
  size = static_cast<std::int64_t>(static_cast<double>(2 * size) / 3);
  if (factor == 0) return size;  // null
  size = static_cast<std::int64_t>(factor * static_cast<double>(size));
  return multiple * ((size + multiple - 1) / multiple);
}

/// Inner width of the feed-forward branch: two thirds of intermediate_size, rounded up, or
/// intermediate_size itself if block_auto_adjust_ff_dim is false.
void inner_width_keys(ConfigKeys& keys, ModelConfig& model) {
  constexpr std::int64_t kMultiple = 256;
  ConfigReader* const reader = keys.reader();
  bool is_adjusted = model.intermediate_size % kMultiple == 0;
  std::int64_t size = is_adjusted ? model.intermediate_size * 3 / 2 : model.intermediate_size,
               multiple = kMultiple;
  double factor = 1;
  if (reader != nullptr) {
    reader->read(size, "block_ff_dim|intermediate_size", 12288);
  } else {
    keys.member("intermediate_size", size);
  }
  keys.member("block_auto_adjust_ff_dim", is_adjusted, 1);
  keys.member("block_multiple_of", multiple, kMultiple);
  keys.nullable("block_ffn_dim_multiplier", factor, 1);
  if (reader == nullptr) return;
  model.intermediate_size = is_adjusted ? adjusted_width(size, factor, multiple) : size;
  if (!(factor >= 0 && factor < 1e3))
    reader->problem(concat("block_ffn_dim_multiplier: got ", factor, ", want 0 to 1000"));
  // An export drops block_ff_dim, but may keep the other keys of its base.
  if (reader->find("block_ff_dim") != nullptr &&
      !(is_adjusted && multiple == kMultiple && factor == 1))
    reader->problem(
        concat("block_ff_dim: want it with block_auto_adjust_ff_dim true, block_multiple_of ",
               kMultiple, " and block_ffn_dim_multiplier 1; give intermediate_size instead"));
}

void lfm2_keys(ConfigKeys& keys, ModelConfig& model) {
  lfm2_sizes(keys, model);
  inner_width_keys(keys, model);
  if (!keys.fit(model)) return;
  lfm2_mixer_keys(keys, model, true);
  lfm2_last_keys(keys, model);
  keys.inert({"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
              "block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out",
              "conv_use_xavier_init", "num_heads", "theta", "use_pos_enc"});
}

/// The first layers, which have a feed-forward branch in place of experts.
void dense_layer_keys(ConfigKeys& keys, ModelConfig& model) {
  if (ConfigReader* const reader = keys.reader()) {
    const json::value* value = reader->find(kDenseLayers);
    std::int64_t dense = 2;
    if (value != nullptr) dense = value->is_int64() ? value->get_int64() : -1;
    if (dense < 0) reader->refuse(kDenseLayers, *value, "a whole number of at least 0");
    dense = std::clamp<std::int64_t>(dense, 0, model.layers);
    model.experts.layers = std::string(static_cast<std::size_t>(dense), 'f') +
                           std::string(static_cast<std::size_t>(model.layers - dense), 'e');
    if (dense == 0) model.experts.layers.clear();
    return;
  }
  std::int64_t dense = 0;
  while (dense < model.layers && !has_experts(model.experts, dense)) ++dense;
  for (std::int64_t i = dense; i < model.layers; ++i)
    if (!has_experts(model.experts, i))
      throw DataError(concat("a folder of an ", model.family,
                             " model cannot store model.experts.layers=", model.experts.layers,
                             ": only the first layers may be without experts"));
  keys.written()[kDenseLayers] = dense;
}

void lfm2_moe_keys(ConfigKeys& keys, ModelConfig& model) {
  lfm2_sizes(keys, model);
  keys.member("intermediate_size", model.intermediate_size, 7168);
  if (!keys.fit(model)) return;
  lfm2_mixer_keys(keys, model, false);
  expert_keys(keys, model,
              {.count = "num_experts",
               .intermediate_size = "moe_intermediate_size",
               .missing_count = 32,
               .missing_chosen = 4,
               .missing_intermediate_size = 1792,
               .sums_to_one = "norm_topk_prob",
               .missing_sums_to_one = true,
               .rule_of_sum = kSigmoidRule,
               .plain_rule = kPlainSigmoidRule,
               .missing_balance = 0});
  dense_layer_keys(keys, model);
  keys.member("use_expert_bias", model.experts.selection_bias, 1);
  keys.member("routed_scaling_factor", model.experts.scale, 1);
  if (keys.reader() != nullptr && !(model.experts.scale > 0))
    keys.reader()->problem(
        concat("routed_scaling_factor: got ", model.experts.scale, ", want a number above 0"));
  lfm2_last_keys(keys, model);
}

// Source: llama.cpp, src/models/lfm2moe.cpp.
std::string lfm2_moe_difference(const ModelConfig& model) {
  return model.experts.selection_bias
             ? ""
             : "llama.cpp's LFM2 MoE has a bias for the choice of experts (use_expert_bias)";
}

}  // namespace

ModelFamily lfm2_family() {
  HybridDecoder kind = lfm2("lfm2", "LFM2");
  kind.layout = with_attention("lfm2", "Lfm2ForCausalLM", lfm2_keys);
  kind.gguf = {.architecture = "lfm2", .has_short_convolutions = true};
  return hybrid_decoder_family(kind);
}

ModelFamily lfm2_moe_family() {
  HybridDecoder kind = lfm2("lfm2_moe", "LFM2 MoE");
  kind.has_experts = true;
  kind.experts = 32;
  kind.chosen_experts = 4;
  kind.expert_rule = kSigmoidRule;
  kind.expert_epsilon = 1e-6f;
  kind.layout = with_attention("lfm2_moe", "Lfm2MoeForCausalLM", lfm2_moe_keys);
  kind.layout.experts_are_parameters = true;
  kind.gguf = {.architecture = "lfm2moe",
               .difference = lfm2_moe_difference,
               .experts = GgufLayout::Experts{.rule = kSigmoidRule,
                                              .has_own_size = true,
                                              .count_key = "num_experts",
                                              .size_key = "moe_intermediate_size",
                                              .rule_key = "norm_topk_prob",
                                              .dense_layers_key = kDenseLayers,
                                              .gating_function = 2},
               .has_short_convolutions = true};
  return hybrid_decoder_family(kind);
}

}  // namespace hybrid_trainer
