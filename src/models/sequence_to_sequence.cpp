#include "hybrid_trainer/models/sequence_to_sequence.h"

namespace hybrid_trainer {

SequenceToSequence::SequenceToSequence(const ModelConfig& config, const DecoderSpec& spec,
                                       const EncoderMaker& make_encoder,
                                       std::shared_ptr<EncoderOutput> output, std::uint64_t seed,
                                       const Stream& stream)
    : output_(std::move(output)),
      decoder_(config, spec, seed, stream),
      encoder_(make_encoder(decoder_.tokens())) {
  encoder_->initialize(spec.deviations, seed, stream);
}

namespace {

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

}  // namespace

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

}  // namespace hybrid_trainer
