#include "hybrid_trainer/nn/transformer_block.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/attention.h"
#include "hybrid_trainer/nn/dropout.h"
#include "hybrid_trainer/nn/feed_forward.h"
#include "hybrid_trainer/nn/gated_feed_forward.h"
#include "hybrid_trainer/nn/rms_norm.h"

namespace hybrid_trainer {
namespace {

std::string block_name(int index, const char* part) {
  return "h." + std::to_string(index) + "." + part;
}

}  // namespace

TransformerBlock::TransformerBlock(int index, const BlockSpec& spec, const Stream& stream)
    : spec_(spec) {
  const auto norm = [&](const char* name) {
    return make_norm(block_name(index, name), spec, stream);
  };
  const auto site = static_cast<std::uint64_t>(2 * index + 1);  // 0 is the embedding's
  parts_[0].name = block_name(index, "attn");
  parts_[1].name = block_name(index, "mlp");
  parts_[0].norm = norm("ln_1");
  parts_[0].branch = std::make_unique<Attention>(parts_[0].name, spec, stream);
  parts_[0].dropout_site = site;
  parts_[1].norm = norm("ln_2");
  if (spec.gated) {
    parts_[1].branch = std::make_unique<GatedFeedForward>(parts_[1].name, spec, stream);
  } else {
    parts_[1].branch = std::make_unique<FeedForward>(parts_[1].name, spec, stream);
  }
  parts_[1].dropout_site = site + 1;
  if (!spec.sandwich) return;
  parts_[0].last_norm = norm("ln_3");
  parts_[1].last_norm = norm("ln_4");
}

/// With nothing between, the branch's last product adds the residual itself; else a last norm and
/// dropout come first.
Tensor TransformerBlock::forward(const Part& part, const Tensor& x, const Tensor& residual,
                                 ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label(part.name);
  const Tensor normal = part.norm->forward(x, tape, stream);
  if (!drops(tape.pass()) && !part.last_norm)
    return part.branch->forward(normal, residual, tape, stream);
  Tensor y = part.branch->forward(normal, Tensor{}, tape, stream);
  if (part.last_norm) y = part.last_norm->forward(y, tape, stream);
  if (drops(tape.pass())) apply_dropout(y, spec_.dropout, tape.pass(), part.dropout_site, stream);
  // Apart from what the norm made, which the tape may think it can rebuild.
  const Tensor sum = part.last_norm ? Tensor::empty_like(y, MemoryKind::kActivations, stream) : y;
  kernels::add(sum, y, residual, stream);
  return sum;
}

/// Adds to dx, the gradient of the residual stream, what comes through the part from dy.
void TransformerBlock::backward(const Part& part, const Tensor& dx, const Tensor& dy,
                                ActivationTape& tape, const Stream& stream) {
  const MemoryLabel label(part.name);
  Tensor dbranch = dy;
  if (drops(tape.pass())) {
    dbranch = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
    copy(dbranch, dy, stream);
    apply_dropout(dbranch, spec_.dropout, tape.pass(), part.dropout_site, stream);
  }
  if (part.last_norm) dbranch = part.last_norm->backward(dbranch, tape, stream);
  const Tensor dnormal = part.branch->backward(dbranch, tape, stream);
  part.norm->backward_onto(dx, dnormal, tape, stream);
}

Tensor TransformerBlock::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  const Tensor middle = forward(parts_[0], x, x, tape, stream);
  const bool parallel = spec_.order == BlockOrder::kParallel;
  return forward(parts_[1], parallel ? x : middle, middle, tape, stream);
}

Tensor TransformerBlock::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  Tensor of_both = dy;
  if (spec_.order == BlockOrder::kParallel) {
    of_both = Tensor::empty_like(dy, MemoryKind::kActivations, stream);
    copy(of_both, dy, stream);
  }
  backward(parts_[1], dy, of_both, tape, stream);
  backward(parts_[0], dy, of_both, tape, stream);
  return dy;
}

Tensor TransformerBlock::decode(const Tensor& x, const DecodeTexts& texts, const State& state,
                                const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  const bool parallel = spec_.order == BlockOrder::kParallel;
  Tensor y = x;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Tensor normal = parts_[i].norm->forward(parallel ? x : y, tape, stream);
    const bool joins = parts_[i].last_norm == nullptr;
    Tensor branch =
        parts_[i].branch->decode(normal, joins ? y : Tensor{}, texts, state[i].get(), pass, stream);
    if (!joins) {
      branch = parts_[i].last_norm->forward(branch, tape, stream);
      kernels::add(branch, branch, y, stream);
    }
    y = branch;
  }
  return y;
}

TransformerBlock::State TransformerBlock::make_state(TextRoom room, DType dtype,
                                                     const Stream& stream) const {
  State state;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    state[i] = parts_[i].branch->make_state(room, dtype, stream);
  return state;
}

void TransformerBlock::visit_parameters(const ParameterVisitor& visit) {
  for (const Part& part : parts_) {
    part.norm->visit_parameters(visit);
    part.branch->visit_parameters(visit);
    if (part.last_norm) part.last_norm->visit_parameters(visit);
  }
}

void TransformerBlock::visit_linears(const LinearVisitor& visit) {
  for (const Part& part : parts_) part.branch->visit_linears(visit);
}

std::array<Linear*, 2> TransformerBlock::projections() {
  return {&parts_[0].branch->projection(), &parts_[1].branch->projection()};
}

}  // namespace hybrid_trainer
