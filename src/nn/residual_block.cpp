#include "hybrid_trainer/nn/residual_block.h"

#include <algorithm>

namespace hybrid_trainer {

ResidualBlock::ResidualBlock(const ModuleName& name, const ResidualSpec& residual,
                             const LayerSpec& layer, std::uint64_t first_site, const Stream& stream)
    : name_(name.here), residual_(residual) {
  const auto norm = [&](const ModuleName& part) {
    return make_norm(name / part, residual.width, residual.norm, stream);
  };
  for (const BranchSpec& spec : layer) {
    require(!residual.post_norm || !spec.last_norm,
            "residual block: post-norm does not support a last norm");
    require(!residual.post_norm || !spec.norm.here.empty(),
            "residual block: post-norm needs a norm for each branch");
    const ModuleName branch = name / spec.name;
    parts_.push_back({.name = branch.here,
                      .norm = spec.norm.here.empty() ? nullptr : norm(spec.norm),
                      .branch = spec.make(branch, stream),
                      .last_norm = spec.last_norm ? norm(*spec.last_norm) : nullptr,
                      .dropout_site = first_site++});
  }
}

Tensor ResidualBlock::added(const Part& part, const Tensor& x, const Tensor& y, bool is_separate,
                            const Pass& pass, const Stream& stream) const {
  if (drops(pass)) apply_dropout(y, residual_.dropout, pass, part.dropout_site, stream);
  const Tensor sum = is_separate ? Tensor::empty_like(y, MemoryKind::kActivations, stream) : y;
  kernels::axpy(sum, x, residual_.scale, y, stream);
  return sum;
}

/// Calls branch(input of the branch, residual). The last product of the branch adds the residual if
/// it directly precedes the sum.
template <class Branch>
Tensor ResidualBlock::forward(const Part& part, const Tensor& x, ActivationTape& tape,
                              const Stream& stream, const Branch& branch) {
  const MemoryLabel label(part.name);
  const Pass& pass = tape.pass();
  const bool is_plain = !drops(pass) && !part.last_norm && residual_.scale == 1;
  if (residual_.post_norm) {
    const Tensor sum =
        is_plain ? branch(x, x) : added(part, x, branch(x, Tensor{}), false, pass, stream);
    return part.norm->forward(sum, tape, stream);
  }
  const Tensor normal = part.norm ? part.norm->forward(x, tape, stream) : x;
  if (is_plain) return branch(normal, x);
  Tensor y = branch(normal, Tensor{});
  if (part.last_norm) y = part.last_norm->forward(y, tape, stream);
  // The sum needs new memory if the tape may rebuild the norm's result.
  return added(part, x, y, part.last_norm && tape.keeps(), pass, stream);
}

Tensor ResidualBlock::before_sum(const Part& part, const Tensor& dsum, const Pass& pass,
                                 const Stream& stream) const {
  if (!drops(pass) && residual_.scale == 1) return dsum;
  Tensor dy = Tensor::empty_like(dsum, MemoryKind::kActivations, stream);
  kernels::scale(dy, dsum, residual_.scale, stream);
  if (drops(pass)) apply_dropout(dy, residual_.dropout, pass, part.dropout_site, stream);
  return dy;
}

Tensor ResidualBlock::backward(const Part& part, const Tensor& dx, ActivationTape& tape,
                               const Stream& stream) {
  const MemoryLabel label(part.name);
  if (residual_.post_norm) {
    const Tensor dsum = part.norm->backward(dx, tape, stream);
    const Tensor dinput =
        part.branch->backward(before_sum(part, dsum, tape.pass(), stream), tape, stream);
    kernels::add(dsum, dsum, dinput.view(dsum.shape()), stream);
    return dsum;
  }
  Tensor dbranch = before_sum(part, dx, tape.pass(), stream);
  if (part.last_norm) dbranch = part.last_norm->backward(dbranch, tape, stream);
  const Tensor dnormal = part.branch->backward(dbranch, tape, stream);
  if (part.norm) {
    part.norm->backward_onto(dx, dnormal, tape, stream);
  } else {
    kernels::add(dx, dx, dnormal.view(dx.shape()), stream);
  }
  return dx;
}

Tensor ResidualBlock::forward(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  Tensor y = x;
  for (const Part& part : parts_) {
    y = forward(part, y, tape, stream, [&](const Tensor& normal, const Tensor& residual) {
      return part.branch->forward(normal, residual, tape, stream);
    });
  }
  return y;
}

Tensor ResidualBlock::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  Tensor dx = dy;
  for (std::size_t i = parts_.size(); i-- > 0;) dx = backward(parts_[i], dx, tape, stream);
  return dx;
}

Tensor ResidualBlock::decode(const Tensor& x, const DecodeTexts& texts, const State& state,
                             const Pass& pass, const Stream& stream) {
  ForwardOnlyTape tape(pass);
  Tensor y = x;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    y = forward(parts_[i], y, tape, stream, [&](const Tensor& normal, const Tensor& residual) {
      return parts_[i].branch->decode(normal, residual, texts, state[i].get(), pass, stream);
    });
  }
  return y;
}

ResidualBlock::State ResidualBlock::make_state(DecodeCapacity room, DType dtype,
                                               const Stream& stream) const {
  State state;
  for (const Part& part : parts_) state.push_back(part.branch->make_state(room, dtype, stream));
  return state;
}

bool ResidualBlock::supports_segments() const {
  return std::ranges::all_of(parts_,
                             [](const Part& part) { return part.branch->supports_segments(); });
}

bool ResidualBlock::carries_state() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.branch->carries_state(); });
}

TokenFlops ResidualBlock::flops(std::int64_t time) const {
  TokenFlops sum;
  for (const Part& part : parts_) sum = sum + part.branch->flops(time);
  return sum;
}

/// Each norm saves its input and, unless rebuilt, its output. A last norm's result is not saved.
BlockKept ResidualBlock::kept() const {
  const auto width = static_cast<double>(residual_.width);
  BlockKept sum{};
  sum.back() = width;
  for (const Part& part : parts_) {
    const KeptNumbers branch = part.branch->kept();
    for (std::size_t level = 0; level < kRebuilds; ++level) {
      const bool output = level < static_cast<std::size_t>(Rebuild::kNormalized);
      const int norm = part.norm ? 1 + (output ? 1 : 0) : 1;  // or the branch's input
      sum[level] += branch[level] + (norm + (part.last_norm ? 1 : 0)) * width;
    }
  }
  return sum;
}

void ResidualBlock::visit_parameters(const ParameterVisitor& visit) {
  for (const Part& part : parts_) {
    if (part.norm) part.norm->visit_parameters(visit);
    part.branch->visit_parameters(visit);
    if (part.last_norm) part.last_norm->visit_parameters(visit);
  }
}

Recomputation::Recomputation(std::span<const BlockKept> blocks, double share) {
  double all = 0;
  for (const BlockKept& kept : blocks) all += kept.front() - kept.back();
  constexpr double kRoundingErrors = 1e-9;  // tolerance for sums
  double wanted = share * all - kRoundingErrors * all;
  counts_.front() = blocks.size();
  for (std::size_t level = 1; level < kLevels; ++level) {
    std::size_t& count = counts_[level];
    for (; count < blocks.size() && wanted > 0; ++count)
      wanted -= blocks[count][level - 1] - blocks[count][level];
  }
}

Rebuild Recomputation::rebuild(std::size_t block) const {
  if (whole(block)) return Rebuild::kNothing;
  auto level = static_cast<std::size_t>(Rebuild::kAttended);
  while (level > 0 && block >= counts_[level]) --level;
  return static_cast<Rebuild>(level);
}

BlockStack::BlockStack(const Spec& spec, const Stream& stream)
    : input_dropout_(spec.applies_input_dropout ? spec.residual.dropout : 0),
      input_site_(spec.first_site) {
  std::uint64_t site = spec.first_site + (spec.applies_input_dropout ? 1 : 0);
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    const LayerSpec layer = spec.layer(i);
    blocks_.push_back(std::make_unique<ResidualBlock>(spec.name / ModuleName(std::to_string(i)),
                                                      spec.residual, layer, site, stream));
    kept_.push_back(blocks_.back()->kept());
    site += layer.size();
  }
  if (!spec.final_norm) return;
  norm_name_ = spec.final_norm->here;
  final_norm_ = make_norm(*spec.final_norm, spec.residual.width, spec.residual.norm, stream);
}

/// Applies the input dropout in place. A call on the gradient drops the same elements.
void BlockStack::drop(const Tensor& x, const Pass& pass, const Stream& stream) const {
  if (input_dropout_ != 0 && pass.training)
    apply_dropout(x, input_dropout_, pass, input_site_, stream);
}

Tensor BlockStack::forward(Tensor x, ActivationTape& tape, const Stream& stream) {
  drop(x, tape.pass(), stream);
  const Recomputation again = recomputation(tape);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    tape.set_rebuild(again.rebuild(i));
    x = again.whole(i) ? CheckpointedModule(*blocks_[i]).forward(x, tape, stream)
                       : blocks_[i]->forward(x, tape, stream);
  }
  tape.set_rebuild(Rebuild::kNothing);
  return normed(x, tape, stream);
}

Tensor BlockStack::backward(Tensor dy, ActivationTape& tape, const Stream& stream) {
  if (final_norm_) dy = final_norm_->backward(dy, tape, stream);
  const Recomputation again = recomputation(tape);
  for (std::size_t i = blocks_.size(); i-- > 0;)
    dy = again.whole(i) ? CheckpointedModule(*blocks_[i]).backward(dy, tape, stream)
                        : blocks_[i]->backward(dy, tape, stream);
  drop(dy, tape.pass(), stream);
  return dy;
}

Tensor BlockStack::normed(const Tensor& x, ActivationTape& tape, const Stream& stream) {
  if (!final_norm_) return x;
  const MemoryLabel label(norm_name_);
  return final_norm_->forward(x, tape, stream);
}

Tensor BlockStack::decode(Tensor x, const DecodeTexts& texts,
                          std::span<const ResidualBlock::State> states, const Pass& pass,
                          const Stream& stream) {
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x = blocks_[i]->decode(x, texts, states[i], pass, stream);
  return x;
}

std::vector<ResidualBlock::State> BlockStack::make_states(DecodeCapacity room, DType dtype,
                                                          const Stream& stream) const {
  std::vector<ResidualBlock::State> states;
  for (const auto& block : blocks_) states.push_back(block->make_state(room, dtype, stream));
  return states;
}

bool BlockStack::supports_segments() const {
  return std::ranges::all_of(blocks_, [](const auto& block) { return block->supports_segments(); });
}

bool BlockStack::carries_state() const {
  return std::ranges::any_of(blocks_, [](const auto& block) { return block->carries_state(); });
}

TokenFlops BlockStack::flops(std::int64_t time) const {
  TokenFlops all{};
  for (const auto& block : blocks_) all = all + block->flops(time);
  return all;
}

double BlockStack::recomputed_flops(std::int64_t time, double share) const {
  const Recomputation again(kept_, share);
  double all = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const TokenFlops flops = blocks_[i]->flops(time);
    if (again.whole(i)) {
      all += flops.forward;
    } else if (again.rebuild(i) == Rebuild::kAttended) {
      all += flops.attended;
    }
  }
  return all;
}

std::vector<std::string> BlockStack::patterns() const {
  std::vector<std::string> patterns;
  for (const auto& block : blocks_) patterns.push_back(block->name() + ".*");
  return patterns;
}

}  // namespace hybrid_trainer
