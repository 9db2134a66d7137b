#include "src/models/block_encoder.h"

#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/dropout.h"

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

}  // namespace hybrid_trainer
