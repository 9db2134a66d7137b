#include "hybrid_trainer/nn/segment_carry.h"

#include "hybrid_trainer/kernels/columns.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

SegmentCarry::Slot& SegmentCarry::of(const void* branch) {
  const auto [entry, added] = index_.emplace(branch, slots_.size());
  if (added) slots_.emplace_back();
  return slots_[entry->second];
}

void SegmentCarry::begin() {
  end();
  wants_last_ = true;
}

void SegmentCarry::go_on() {
  for (Slot& slot : slots_) slot = {.first = slot.last};
}

void SegmentCarry::save_firsts(ActivationTape& tape, const Stream& stream) const {
  for (const Slot& slot : slots_) {
    if (!slot.first.scan) continue;
    tape.save({ActivationRole::kBlockInput, slot.first.rows}, stream);
    tape.save({ActivationRole::kBlockInput, slot.first.scan}, stream);
  }
}

void SegmentCarry::begin_backward() { end(); }

void SegmentCarry::take_firsts(ActivationTape& tape, const Stream& stream) {
  for (std::size_t i = slots_.size(); i-- > 0;) {
    slots_[i].first.scan = tape.take(stream);
    slots_[i].first.rows = tape.take(stream);
  }
}

void SegmentCarry::go_back() {
  for (Slot& slot : slots_) slot = {.dlast = slot.dfirst};
}

void SegmentCarry::end() {
  for (Slot& slot : slots_) slot = {};
  wants_last_ = false;
}

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

}  // namespace hybrid_trainer
