#include "hybrid_trainer/memory/weight_snapshot.h"

namespace hybrid_trainer {

void WeightSnapshot::take(const std::vector<Parameter*>& parameters, const Stream& stream) {
  if (taken()) drop();
  try {
    for (const Parameter* parameter : parameters) {
      const MemoryLabel label(parameter->name());
      const Tensor master = parameter->home_master();
      copies_.push_back(Tensor::empty_like(master, MemoryKind::kSnapshot, host_));
      copy_or_wait(copies_.back(), master, stream);
    }
    last_use_.record(stream);
  } catch (...) {
    last_use_.record(stream);
    drop();
    throw;
  }
}

void WeightSnapshot::restore(const std::vector<Parameter*>& parameters, const Stream& stream) {
  require(parameters.size() == copies_.size(), "snapshot: restore of what was not taken");
  for (std::size_t i = 0; i < parameters.size(); ++i)
    copy_or_wait(parameters[i]->home_master(), copies_[i], stream);
  last_use_.record(stream);
}

void WeightSnapshot::drop() {
  last_use_.synchronize();
  copies_.clear();
  host_.pool()->trim();
}

}  // namespace hybrid_trainer
