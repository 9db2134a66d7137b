#include "hybrid_trainer/nn/segment_carry.h"

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
  place_ = {};
  wants_last_ = false;
}

}  // namespace hybrid_trainer
