#include "hybrid_trainer/nn/segmented_pass.h"

#include <algorithm>

#include "hybrid_trainer/kernels/columns.h"
#include "hybrid_trainer/nn/language_head.h"

namespace hybrid_trainer {
namespace {

/// Tokens [begin, end) of each sequence of a batch, whose loss is divided as the whole's. Shares
/// memory where there is one sequence.
Batch segment_of(const Batch& batch, std::int64_t begin, std::int64_t end, const Stream& stream) {
  const std::int64_t sequences = batch.size(), time = batch.tokens_per_example();
  std::vector<NamedTensor> parts;
  for (const NamedTensor& whole : batch.tensors()) {
    const Tensor& all = whole.tensor;
    if (sequences == 1) {
      parts.push_back({whole.name, all.view({time, 1}).rows(begin, end).view({1, end - begin})});
      continue;
    }
    const Tensor part = Tensor::empty({sequences, end - begin}, all.dtype(), all.kind(), stream);
    kernels::copy_columns({part, 0}, {all, begin}, end - begin, stream);
    parts.push_back({whole.name, part});
  }
  Batch segment(std::move(parts), end - begin);
  segment.set_targets(batch.loss_divisor());
  return segment;
}

/// Undefined where each sequence is one document.
Tensor positions_of(const Batch& batch) {
  const Tensor* const positions = batch.find("positions");
  return positions == nullptr ? Tensor{} : *positions;
}

Tensor losses_of(const Batch& batch, const Stream& stream) {
  return Tensor::empty({batch.tokens()}, DType::kF32, MemoryKind::kWorkspace, stream);
}

}  // namespace

Tensor SegmentedPass::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                              const Losses& losses, const Stream& stream) {
  const std::int64_t time = batch.tokens_per_example(), length = tape.pass().segment;
  const Tensor of_rows = losses_of(batch, stream);
  Pass pass = tape.pass();
  const std::int64_t first_token = pass.first_token;
  pass.carry = &carry_;
  gradient_scale_ = gradient_scale;
  carry_.begin();
  for (std::int64_t begin = 0; begin < time; begin += length) {
    const std::int64_t end = std::min(time, begin + length);
    if (begin > 0) carry_.go_on();
    if (begin > 0 && tape.keeps()) carry_.save_firsts(tape, stream);
    carry_.set_place({begin, positions_of(batch)});
    pass.first_token = first_token + begin * batch.size();
    ForwardOnlyTape forward_only(pass);
    losses(of_rows.rows(begin * batch.size(), end * batch.size()),
           segment_of(batch, begin, end, stream), 1, forward_only);
  }
  carry_.end();
  return LanguageHead::mean(of_rows, batch.loss_divisor(), stream);
}

void SegmentedPass::backward(const Batch& batch, ActivationTape& tape, const Losses& losses,
                             const Backward& backward, const Stream& stream) {
  const std::int64_t time = batch.tokens_per_example(), length = tape.pass().segment;
  const std::int64_t first_token = tape.pass().first_token;
  carry_.begin_backward();
  for (std::int64_t begin = (time - 1) / length * length; begin >= 0; begin -= length) {
    const std::int64_t end = std::min(time, begin + length);
    if (begin > 0) carry_.take_firsts(tape, stream);
    carry_.set_place({begin, positions_of(batch)});
    tape.set_segment(&carry_, first_token + begin * batch.size());
    const Batch segment = segment_of(batch, begin, end, stream);
    losses(losses_of(segment, stream), segment, gradient_scale_, tape);
    backward(segment, tape);
    carry_.go_back();
  }
  tape.set_segment(nullptr, first_token);
  carry_.end();
}

}  // namespace hybrid_trainer
