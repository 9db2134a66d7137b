#include "hybrid_trainer/nn/segmented_pass.h"

#include <algorithm>

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/language_head.h"
#include "src/core/narrow.h"

namespace hybrid_trainer {

SegmentCarry::Slot& SegmentCarry::of(const void* branch) {
  const auto [entry, added] = index_.emplace(branch, index_.size());
  if (added) slots_.resize(std::max(slots_.size(), index_.size()));
  return slots_[entry->second];
}

void SegmentCarry::begin(const std::vector<State>& first_states) {
  end();
  needs_last_ = true;
  slots_.resize(std::max(slots_.size(), first_states.size()));
  for (std::size_t i = 0; i < first_states.size(); ++i) slots_[i].first = first_states[i];
}

std::vector<SegmentCarry::State> SegmentCarry::last_states() const {
  std::vector<State> states;
  for (const Slot& slot : slots_) states.push_back(slot.last);
  return states;
}

void SegmentCarry::save_first_states(ActivationTape& tape, const Stream& stream) const {
  for (const Slot& slot : slots_) {
    tape.save({ActivationRole::kBlockInput, slot.first.rows}, stream);
    tape.save({ActivationRole::kBlockInput, slot.first.scan}, stream);
  }
}

void SegmentCarry::take_first_states(ActivationTape& tape, const Stream& stream) {
  for (std::size_t i = slots_.size(); i-- > 0;) {
    slots_[i].first.scan = tape.take(stream);
    slots_[i].first.rows = tape.take(stream);
  }
}

void SegmentCarry::end() {
  for (Slot& slot : slots_) slot = {};
  place_ = {};
  needs_last_ = false;
}

namespace {

Tensor in_dtype(const Tensor& rows, DType dtype, const Stream& stream) {
  if (!rows || rows.dtype() == dtype) return rows;
  Tensor cast = Tensor::empty(rows.shape(), dtype, MemoryKind::kActivations, stream);
  kernels::cast(cast, rows, stream);
  return cast;
}

/// Copies `part` to the rows of `whole` from `first` on. `whole` has `all` rows.
void put(Tensor& whole, const Tensor& part, std::int64_t first, std::int64_t all,
         const Stream& stream) {
  if (!part) return;
  Shape shape{all};
  for (int i = 1; i < part.shape().rank(); ++i) shape.append(part.size(i));
  if (!whole || whole.shape() != shape || whole.dtype() != part.dtype())
    whole = Tensor::empty(shape, part.dtype(), MemoryKind::kActivations, stream);
  copy(whole.rows(first, first + part.size(0)), part, stream);
}

Tensor some(const Tensor& whole, std::int64_t first, std::int64_t count) {
  return whole ? whole.rows(first, first + count) : Tensor{};
}

/// Returns tokens [begin, end) of each sequence, with the whole batch's loss divisor.
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

std::vector<SegmentCarry::State> RowStates::first_states(std::int64_t first, std::int64_t count,
                                                         DType dtype, const Stream& stream) const {
  std::vector<SegmentCarry::State> states;
  for (const SegmentCarry::State& all : now_)
    states.push_back(
        {in_dtype(some(all.rows, first, count), dtype, stream), some(all.scan, first, count)});
  return states;
}

void RowStates::remember(std::int64_t first, const std::vector<SegmentCarry::State>& last_states,
                         const Stream& stream) {
  const MemoryLabel label("carried states");
  next_.resize(last_states.size());
  for (std::size_t i = 0; i < last_states.size(); ++i) {
    put(next_[i].rows, last_states[i].rows, first, all_, stream);
    put(next_[i].scan, last_states[i].scan, first, all_, stream);
  }
}

void RowStates::save(State& state) const {
  state.integers["carried.branches"] = std::ssize(now_);
  for (std::size_t i = 0; i < now_.size(); ++i) {
    if (now_[i].rows) state.tensors[concat("carried.", i, ".rows")] = now_[i].rows;
    if (now_[i].scan) state.tensors[concat("carried.", i, ".scan")] = now_[i].scan;
  }
}

void RowStates::load(const State& state, const Stream& stream) {
  now_.clear();
  now_.resize(narrow<std::uint16_t>(state.integer("carried.branches"), "carried.branches"));
  const auto read = [&](const std::string& name) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) return Tensor{};
    const Tensor there = Tensor::empty_like(found->second, MemoryKind::kActivations, stream);
    wait_for_copy(there, found->second, stream);
    return there;
  };
  for (std::size_t i = 0; i < now_.size(); ++i)
    now_[i] = {read(concat("carried.", i, ".rows")), read(concat("carried.", i, ".scan"))};
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
  std::vector<SegmentCarry::State> first_states;
  first_token_ = pass.first_token;
  if (pass.states != nullptr && batch.continues())
    first_states = pass.states->first_states(first_token_ / batch.tokens_per_example(),
                                             batch.size(), pass.dtype, stream);
  continues_ = !first_states.empty();
  carry_.begin(first_states);
}

Tensor SegmentedPass::forward(const Batch& batch, float gradient_scale, ActivationTape& tape,
                              SegmentSteps& steps, const Stream& stream) {
  const Pass whole = tape.pass();
  const std::int64_t count = segments(batch, whole);
  const bool waits = tape.keeps() && whole.loss_may_wait;
  loss_ = of_rows_ = {};  // from a pass that ran out of memory
  carry_.end();
  gradient_scale_ = gradient_scale;
  const Tensor of_rows = losses_of(batch, stream);
  begin(batch, whole, stream);
  for (std::int64_t i = 0, row = 0; i < count; ++i) {
    if (i > 0) carry_.next_segment();
    const bool is_kept = tape.keeps() && !is_recomputed(i, count, whole);
    if (tape.keeps() && !is_kept && has_first_state(i)) carry_.save_first_states(tape, stream);
    ForwardOnlyTape forward_only(whole);
    const Batch segment = enter(batch, i, is_kept ? tape : forward_only, stream);
    const Tensor x = steps.hidden(segment, is_kept ? tape : forward_only, stream);
    if (!waits)
      steps.losses(of_rows.rows(row, row + segment.tokens()), is_kept ? copy_of(x, stream) : x,
                   segment, 1, forward_only, stream);
    row += segment.tokens();
    if (is_kept) tape.save({ActivationRole::kBlockInput, x}, stream);
    if (is_kept && has_first_state(i)) carry_.save_first_states(tape, stream);
  }
  if (whole.states != nullptr && tape.keeps())
    whole.states->remember(first_token_ / batch.tokens_per_example(), carry_.last_states(), stream);
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
    if (has_first_state(i)) carry_.take_first_states(tape, stream);
    const Batch segment = enter(batch, i, tape, stream);
    tape.set_positions(tensor_of(segment, "positions"), tensor_of(segment, "is_token"));
    const Tensor x =
        is_recomputed(i, count, whole) ? steps.hidden(segment, tape, stream) : tape.take(stream);
    row -= segment.tokens();
    steps.losses(of_rows.rows(row, row + segment.tokens()), x, segment, gradient_scale_, tape,
                 stream);
    steps.backward_from_losses(segment, tape, stream);
    carry_.previous_segment();
  }
  tape.set_segment(nullptr, first_token_);
  carry_.end();
  if (loss_) copy(loss_, LanguageHead::mean(of_rows, batch.loss_divisor(), stream), stream);
  loss_ = of_rows_ = {};
}

}  // namespace hybrid_trainer
