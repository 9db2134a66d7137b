#include "hybrid_trainer/nn/segmented_pass.h"

#include <algorithm>

#include "hybrid_trainer/kernels/columns.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/language_head.h"
#include "hybrid_trainer/nn/row_states.h"

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

/// Undefined if the batch has none.
Tensor tensor_of(const Batch& batch, const char* name) {
  const Tensor* const tensor = batch.find(name);
  return tensor == nullptr ? Tensor{} : *tensor;
}

Tensor copy_of(const Tensor& x, const Stream& stream) {
  Tensor y = Tensor::empty_like(x, MemoryKind::kActivations, stream);
  copy(y, x, stream);
  return y;
}

Tensor losses_of(const Batch& batch, const Stream& stream) {
  return Tensor::empty({batch.tokens()}, DType::kF32, MemoryKind::kWorkspace, stream);
}

}  // namespace

std::int64_t SegmentedPass::segments(const Batch& batch, const Pass& pass) {
  const std::int64_t time = batch.tokens_per_example();
  return pass.segment > 0 ? (time + pass.segment - 1) / pass.segment : 1;
}

Batch SegmentedPass::enter(const Batch& batch, std::int64_t index, ActivationTape& tape,
                           const Stream& stream) {
  const std::int64_t time = batch.tokens_per_example(), length = tape.pass().segment,
                     begin = index * length;
  const bool is_whole = length <= 0 || length >= time;
  const std::int64_t end = is_whole ? time : std::min(time, begin + length);
  carry_.set_place({begin, end - begin, time, tensor_of(batch, "positions")});
  tape.set_segment(&carry_, first_token_ + begin);
  return is_whole ? batch : segment_of(batch, begin, end, stream);
}

void SegmentedPass::begin(const Batch& batch, const Pass& pass, const Stream& stream) {
  std::vector<SegmentCarry::State> firsts;
  first_token_ = pass.first_token;
  if (pass.states != nullptr && batch.goes_on())
    firsts = pass.states->firsts(first_token_ / batch.tokens_per_example(), batch.size(),
                                 pass.dtype, stream);
  goes_on_ = !firsts.empty();
  carry_.begin(firsts);
}

Tensor SegmentedPass::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                              SegmentSteps& steps, const Stream& stream) {
  const Pass whole = tape.pass();
  const std::int64_t count = segments(batch, whole);
  const bool waits = tape.keeps() && whole.loss_may_wait;
  loss_ = of_rows_ = {};  // of a pass that ran out of memory
  carry_.end();
  gradient_scale_ = gradient_scale;
  const Tensor of_rows = losses_of(batch, stream);
  begin(batch, whole, stream);
  for (std::int64_t i = 0, row = 0; i < count; ++i) {
    if (i > 0) carry_.go_on();
    const bool is_kept = tape.keeps() && !is_again(i, count, whole);
    if (tape.keeps() && !is_kept && begins_with_state(i)) carry_.save_firsts(tape, stream);
    ForwardOnlyTape forward_only(whole);
    const Batch segment = enter(batch, i, is_kept ? tape : forward_only, stream);
    const Tensor x = steps.hidden(segment, is_kept ? tape : forward_only, stream);
    if (!waits)
      steps.losses(of_rows.rows(row, row + segment.tokens()), is_kept ? copy_of(x, stream) : x,
                   segment, 1, forward_only, stream);
    row += segment.tokens();
    if (is_kept) tape.save({ActivationRole::kBlockInput, x}, stream);
    if (is_kept && begins_with_state(i)) carry_.save_firsts(tape, stream);
  }
  if (whole.states != nullptr && tape.keeps())
    whole.states->remember(first_token_ / batch.tokens_per_example(), carry_.lasts(), stream);
  tape.set_segment(nullptr, first_token_);
  carry_.end();
  if (!waits) return LanguageHead::mean(of_rows, batch.loss_divisor(), stream);
  of_rows_ = of_rows;
  return loss_ = kernels::empty_result(stream);
}

void SegmentedPass::backward(const Batch& batch, ActivationTape& tape, SegmentSteps& steps,
                             const Stream& stream) {
  const Pass whole = tape.pass();
  const std::int64_t count = segments(batch, whole);
  carry_.begin_backward();
  const Tensor of_rows = of_rows_ ? of_rows_ : losses_of(batch, stream);
  for (std::int64_t i = count, row = batch.tokens(); i-- > 0;) {
    if (begins_with_state(i)) carry_.take_firsts(tape, stream);
    const Batch segment = enter(batch, i, tape, stream);
    tape.set_positions(tensor_of(segment, "positions"), tensor_of(segment, "is_token"));
    const Tensor x =
        is_again(i, count, whole) ? steps.hidden(segment, tape, stream) : tape.take(stream);
    row -= segment.tokens();
    steps.losses(of_rows.rows(row, row + segment.tokens()), x, segment, gradient_scale_, tape,
                 stream);
    steps.backward_from_losses(segment, tape, stream);
    carry_.go_back();
  }
  tape.set_segment(nullptr, first_token_);
  carry_.end();
  if (loss_) copy(loss_, LanguageHead::mean(of_rows, batch.loss_divisor(), stream), stream);
  loss_ = of_rows_ = {};
}

}  // namespace hybrid_trainer
