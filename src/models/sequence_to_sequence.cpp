#include "src/models/sequence_to_sequence.h"

#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/nn/feed_forward.h"

namespace hybrid_trainer {

namespace {

BlockStack::Spec encoder_blocks(const SourceEncoder::Spec& spec) {
  return {.name = ModuleName("encoder.h", "encoder.layers"),
          .layers = spec.sizes.layers,
          .layer = [&spec](std::int64_t) { return spec.layer; },
          .residual = spec.residual,
          .first_site = std::uint64_t{1} << 20,  // above the sites of a decoder
          .applies_input_dropout = true,
          .final_norm = spec.final_norm};
}

const ProductFiles kSequenceFiles{.first = {"q_proj", "k_proj", "v_proj"}, .last = "out_proj"};

BranchSpec sequence_self_attention(const ModelConfig& config, std::int64_t heads,
                                   bool bidirectional, bool key_bias) {
  const Attention::Spec attention{.width = config.width,
                                  .heads = static_cast<int>(heads),
                                  .head_size = config.width / heads,
                                  .key_bias = key_bias,
                                  .bidirectional = bidirectional,
                                  .files = kSequenceFiles};
  return {.name = {"attn", "self_attn"},
          .norm = {"ln_1", "self_attn_layer_norm"},
          .make = branch_of<Attention>(attention)};
}

BranchSpec sequence_cross_attention(const ModelConfig& config,
                                    const std::shared_ptr<EncoderOutput>& source, bool key_bias) {
  const CrossAttention::Spec attention{.width = config.width,
                                       .heads = static_cast<int>(config.heads),
                                       .head_size = config.width / config.heads,
                                       .key_bias = key_bias,
                                       .source = source,
                                       .source_length = config.encoder.source_places(),
                                       .text_length = config.context,
                                       .files = kSequenceFiles};
  return {.name = {"cross", "encoder_attn"},
          .norm = {"ln_2", "encoder_attn_layer_norm"},
          .make = branch_of<CrossAttention>(attention)};
}

BranchSpec sequence_feed_forward(const ModelConfig& config, std::int64_t intermediate_size,
                                 const char* norm) {
  const FeedForward::Spec spec{.width = config.width,
                               .intermediate_size = intermediate_size,
                               .exact_gelu = true,
                               .files = {.first = {"fc1"}, .last = "fc2"}};
  return {.name = {"mlp", ""},
          .norm = {norm, "final_layer_norm"},
          .make = branch_of<FeedForward>(spec)};
}

}  // namespace

SourceEncoder::SourceEncoder(const Spec& spec, const Stream& stream)
    : sizes_(spec.sizes), blocks_(encoder_blocks(spec), stream) {}

Tensor SourceEncoder::forward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label("encoder");
  set_positions(batch, tape);
  return blocks_.forward(begin(batch, tape, stream), tape, stream);
}

void SourceEncoder::backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                             const Stream& stream) {
  const MemoryLabel label("encoder");
  set_positions(batch, tape);
  begin_backward(batch, blocks_.backward(dy, tape, stream), tape, stream);
}

std::vector<std::string> SourceEncoder::parts() const {
  std::vector<std::string> parts = parts_of_begin();
  for (std::string& pattern : blocks_.patterns()) parts.push_back(std::move(pattern));
  return parts;
}

LayerSpec sequence_decoder_layer(const ModelConfig& config,
                                 const std::shared_ptr<EncoderOutput>& source, bool key_bias) {
  return {sequence_self_attention(config, config.heads, false, key_bias),
          sequence_cross_attention(config, source, key_bias),
          sequence_feed_forward(config, config.intermediate_size, "ln_3")};
}

LayerSpec sequence_encoder_layer(const ModelConfig& config, bool key_bias) {
  return {sequence_self_attention(config, config.encoder.heads, true, key_bias),
          sequence_feed_forward(config, config.encoder.intermediate_size, "ln_2")};
}

ModelConfig with_encoder_sizes(const ModelConfig& given) {
  ModelConfig config = given;
  EncoderConfig& encoder = config.encoder;
  if (config.intermediate_size == 0) config.intermediate_size = 4 * config.width;
  if (encoder.layers == 0) encoder.layers = config.layers;
  if (encoder.heads == 0) encoder.heads = config.heads;
  if (encoder.intermediate_size == 0) encoder.intermediate_size = config.intermediate_size;
  return config;
}

void collect_head_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const auto check = [&](const char* key, std::int64_t heads) {
    if (heads > 0 && config.width % heads != 0)
      problems.push_back(
          concat(key, ": got ", heads, ", which does not divide model.width ", config.width));
  };
  check("model.heads", config.heads);
  check("model.encoder.heads", config.encoder.heads);
}

void sequence_decoder_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("decoder_layers", model.layers);
  keys.member("decoder_attention_heads", model.heads);
  keys.member("decoder_ffn_dim", model.intermediate_size);
  keys.member("d_model", model.width);
}

void sequence_encoder_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("vocab_size", model.vocabulary);
  keys.member("encoder_layers", model.encoder.layers);
  keys.member("encoder_attention_heads", model.encoder.heads);
  keys.member("encoder_ffn_dim", model.encoder.intermediate_size);
}

void sequence_written_keys(ConfigKeys& keys, const ModelConfig& model, bool has_classifier) {
  keys.write_only("num_hidden_layers", model.encoder.layers);
  keys.write_only("dropout", model.dropout);
  keys.write_only("attention_dropout", 0.0);
  keys.write_only("activation_dropout", 0.0);
  if (has_classifier) keys.write_only("classifier_dropout", 0.0);
  keys.write_only("encoder_layerdrop", 0.0);
  keys.write_only("decoder_layerdrop", 0.0);
  keys.write_only("init_std", model.initializer_range.value_or(0.02));
}

}  // namespace hybrid_trainer
