#include "src/models/sequence_to_sequence.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/config_keys.h"
#include "hybrid_trainer/nn/cross_attention.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/feed_forward.h"

namespace hybrid_trainer {

namespace {

/// Site of the random numbers for dropout before the first block; the blocks' follow. A decoder's are
/// below.
constexpr std::uint64_t kFirstEncoderSite = std::uint64_t{1} << 20;

std::vector<std::unique_ptr<ResidualBlock>> encoder_blocks(const BlockEncoder::Spec& spec,
                                                           const Stream& stream) {
  std::vector<std::unique_ptr<ResidualBlock>> blocks;
  std::uint64_t site = kFirstEncoderSite + 1;
  for (std::int64_t i = 0; i < spec.sizes.layers; ++i) {
    const ModuleName name(concat("encoder.h.", i), concat("encoder.layers.", i));
    blocks.push_back(
        std::make_unique<ResidualBlock>(name, spec.residual, spec.layer, site, stream));
    site += spec.layer.size();
  }
  return blocks;
}

/// A tape whose pass is of a batch's sources, while this lives.
class SourceTape {
 public:
  SourceTape(ActivationTape& tape, const Batch& batch, std::int64_t places)
      : tape_(tape), first_token_(tape.pass().first_token) {
    tape_.set_positions(Tensor());  // those of the batch are of its texts
    tape_.set_segment(tape.pass().carry, first_token_ / batch.tokens_per_example() * places);
  }
  ~SourceTape() { tape_.set_segment(tape_.pass().carry, first_token_); }
  SourceTape(const SourceTape&) = delete;
  SourceTape& operator=(const SourceTape&) = delete;

 private:
  ActivationTape& tape_;
  std::int64_t first_token_;
};

const ProductFiles kSequenceFiles{.first = {"q_proj", "k_proj", "v_proj"}, .last = "out_proj"};

BranchSpec sequence_self_attention(const ModelConfig& config, std::int64_t heads, bool two_way,
                                   bool key_bias) {
  const Attention::Spec attention{.width = config.width,
                                  .heads = static_cast<int>(heads),
                                  .head_size = config.width / heads,
                                  .key_bias = key_bias,
                                  .two_way = two_way,
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

BranchSpec sequence_feed_forward(const ModelConfig& config, std::int64_t inner_width,
                                 const char* norm) {
  const FeedForward::Spec spec{.width = config.width,
                               .inner_width = inner_width,
                               .exact_gelu = true,
                               .files = {.first = {"fc1"}, .last = "fc2"}};
  return {.name = {"mlp", ""},
          .norm = {norm, "final_layer_norm"},
          .make = branch_of<FeedForward>(spec)};
}

}  // namespace

BlockEncoder::BlockEncoder(const Spec& spec, const Stream& stream)
    : sizes_(spec.sizes), dropout_(spec.residual.dropout), blocks_(encoder_blocks(spec, stream)) {}

Tensor BlockEncoder::forward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label("encoder");
  set_positions(batch, tape);
  Tensor x = begin(batch, tape, stream);
  drop(x, tape.pass(), stream);
  x = blocks_.forward(std::move(x), tape, stream);
  return final_norm_ ? final_norm_->forward(x, tape, stream) : x;
}

void BlockEncoder::backward(const Batch& batch, const Tensor& dy, ActivationTape& tape,
                            const Stream& stream) {
  const MemoryLabel label("encoder");
  set_positions(batch, tape);
  Tensor dx = final_norm_ ? final_norm_->backward(dy, tape, stream) : dy;
  dx = blocks_.backward(std::move(dx), tape, stream);
  drop(dx, tape.pass(), stream);
  begin_backward(batch, dx, tape, stream);
}

/// Before the first block; the same call on the gradient drops the same elements.
void BlockEncoder::drop(const Tensor& x, const Pass& pass, const Stream& stream) const {
  if (dropout_ != 0 && pass.training) apply_dropout(x, dropout_, pass, kFirstEncoderSite, stream);
}

void BlockEncoder::initialize(const FirstDeviations& deviations, std::uint64_t seed,
                              const Stream& stream) {
  initialize_begin(deviations, seed, stream);
  blocks_.initialize(deviations, seed, stream);
}

TokenFlops BlockEncoder::flops() const {
  const auto count = static_cast<double>(places());
  const TokenFlops block = blocks_.flops(places());
  return flops_of_begin() +
         TokenFlops{count * block.forward, count * block.backward, count * block.attended};
}

double BlockEncoder::recomputed_flops(double share) const {
  return blocks_.recomputed_flops(places(), share) * static_cast<double>(places());
}

void BlockEncoder::visit_parameters(const ParameterVisitor& visit) {
  visit_parameters_of_begin(visit);
  blocks_.visit_parameters(visit);
  if (final_norm_) final_norm_->visit_parameters(visit);
}

std::vector<std::string> BlockEncoder::parts() const {
  std::vector<std::string> parts = parts_of_begin();
  for (const std::string& block : blocks_.names()) parts.push_back(block + ".*");
  return parts;
}

SequenceToSequence::SequenceToSequence(const ModelConfig& config, const DecoderSpec& spec,
                                       const EncoderMaker& make_encoder,
                                       std::shared_ptr<EncoderOutput> output, std::uint64_t seed,
                                       const Stream& stream)
    : output_(std::move(output)),
      decoder_(config, spec, seed, stream),
      encoder_(make_encoder(decoder_.tokens())) {
  encoder_->initialize(spec.deviations, seed, stream);
}

Tensor SequenceToSequence::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                                   const Stream& stream) {
  {
    const SourceTape of_sources(tape, batch, encoder_->places());
    const bool trains = tape.keeps() && encoder_->trains();
    output_->want_gradient(trains);
    ForwardOnlyTape passing(tape.pass());
    set_output(batch, tape.keeps() && !trains ? passing : tape, stream);
  }
  const Tensor loss = decoder_.forward(batch, gradient_scale, tape, stream);
  if (!tape.keeps()) output_->drop();
  return loss;
}

void SequenceToSequence::backward(const Batch& batch, ActivationTape& tape, const Stream& stream) {
  decoder_.backward(batch, tape, stream);
  const Tensor gradient = output_->take_gradient();
  output_->drop();
  if (!gradient) return;
  const SourceTape of_sources(tape, batch, encoder_->places());
  encoder_->backward(batch, gradient, tape, stream);
}

void SequenceToSequence::visit_parameters(const ParameterVisitor& visit) {
  encoder_->visit_parameters(visit);
  decoder_.visit_parameters(visit);
}

void SequenceToSequence::visit_linears(const LinearVisitor& visit) {
  encoder_->visit_linears(visit);
  decoder_.visit_linears(visit);
}

double SequenceToSequence::flops_of(const Shape& targets) {
  const TokenFlops source = encoder_->flops();
  const double backward = encoder_->trains() ? source.backward : 0;
  return decoder_.flops_of(targets) + (source.forward + backward) * static_cast<double>(targets[0]);
}

double SequenceToSequence::recomputed_flops_of(const Shape& targets, double share) {
  const double of_source = encoder_->trains() ? encoder_->recomputed_flops(share) : 0;
  return decoder_.recomputed_flops_of(targets, share) + of_source * static_cast<double>(targets[0]);
}

std::vector<std::string> SequenceToSequence::parts() const {
  std::vector<std::string> parts = encoder_->parts();
  const std::vector<std::string> decoder = decoder_.parts();
  parts.insert(parts.end(), decoder.begin(), decoder.end());
  return parts;
}

Tensor SequenceToSequence::logits(const Tensor& tokens, const Pass& pass, const Stream& stream) {
  require(output_->values().defined() && output_->values().size(0) == tokens.size(0),
          "logits: a sequence-to-sequence model first encodes as many sources as there are texts");
  return decoder_.logits(tokens, pass, stream);
}

std::int64_t SequenceToSequence::parameter_count() {
  std::int64_t count = decoder_.parameter_count();
  encoder_->visit_parameters([&](Parameter& parameter) { count += parameter.elements(); });
  return count;
}

Batch SequenceToSequence::with_sources(Batch batch, const Stream& stream) const {
  std::vector<NamedTensor> tensors = batch.tensors();
  for (NamedTensor& source : encoder_->empty_sources(batch.size(), stream))
    tensors.push_back(std::move(source));
  Batch whole(std::move(tensors), batch.tokens_per_example());
  whole.set_targets(batch.targets());
  return whole;
}

void SequenceToSequence::encode(const Batch& sources, const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  tape.set_positions(Tensor());
  set_output(sources, tape, stream);
}

LayerSpec sequence_decoder_layer(const ModelConfig& config,
                                 const std::shared_ptr<EncoderOutput>& source, bool key_bias) {
  return {sequence_self_attention(config, config.heads, false, key_bias),
          sequence_cross_attention(config, source, key_bias),
          sequence_feed_forward(config, config.inner_width, "ln_3")};
}

LayerSpec sequence_encoder_layer(const ModelConfig& config, bool key_bias) {
  return {sequence_self_attention(config, config.encoder.heads, true, key_bias),
          sequence_feed_forward(config, config.encoder.inner_width, "ln_2")};
}

ModelConfig with_encoder_sizes(const ModelConfig& given) {
  ModelConfig config = given;
  EncoderConfig& encoder = config.encoder;
  if (config.inner_width == 0) config.inner_width = 4 * config.width;
  if (encoder.layers == 0) encoder.layers = config.layers;
  if (encoder.heads == 0) encoder.heads = config.heads;
  if (encoder.inner_width == 0) encoder.inner_width = config.inner_width;
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
  keys.member("decoder_ffn_dim", model.inner_width);
  keys.member("d_model", model.width);
}

void sequence_encoder_keys(ConfigKeys& keys, ModelConfig& model) {
  keys.member("vocab_size", model.vocabulary);
  keys.member("encoder_layers", model.encoder.layers);
  keys.member("encoder_attention_heads", model.encoder.heads);
  keys.member("encoder_ffn_dim", model.encoder.inner_width);
}

void sequence_written_keys(ConfigKeys& keys, const ModelConfig& model, bool has_classifier) {
  keys.only_written("num_hidden_layers", model.encoder.layers);
  keys.only_written("dropout", model.dropout);
  keys.only_written("attention_dropout", 0.0);
  keys.only_written("activation_dropout", 0.0);
  if (has_classifier) keys.only_written("classifier_dropout", 0.0);
  keys.only_written("encoder_layerdrop", 0.0);
  keys.only_written("decoder_layerdrop", 0.0);
  keys.only_written("init_std", model.initializer_range.value_or(0.02));
}

}  // namespace hybrid_trainer
