#include "hybrid_trainer/nn/segment_carry.h"

#include <algorithm>

#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

SegmentCarry::Slot& SegmentCarry::of(const void* branch) {
  const auto [entry, added] = index_.emplace(branch, index_.size());
  if (added) slots_.resize(std::max(slots_.size(), index_.size()));
  return slots_[entry->second];
}

void SegmentCarry::begin(const std::vector<State>& firsts) {
  end();
  wants_last_ = true;
  slots_.resize(std::max(slots_.size(), firsts.size()));
  for (std::size_t i = 0; i < firsts.size(); ++i) slots_[i].first = firsts[i];
}

void SegmentCarry::go_on() {
  for (Slot& slot : slots_) slot = {.first = slot.last};
}

std::vector<SegmentCarry::State> SegmentCarry::lasts() const {
  std::vector<State> states;
  for (const Slot& slot : slots_) states.push_back(slot.last);
  return states;
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
