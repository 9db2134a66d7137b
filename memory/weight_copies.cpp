#include "memory/weight_copies.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kUpdates = "average.updates";
constexpr double kSamplesInHalfLife = 16;

}  // namespace

std::string average_name(const std::string& weight) { return "average." + weight; }

WeightAverage::WeightAverage(double half_life, const Stream& home)
    : half_life_(half_life),
      interval_(std::max<std::int64_t>(1, std::llround(half_life / kSamplesInHalfLife))),
      home_(home.pool()) {}

void WeightAverage::allocate(const std::vector<Parameter*>& parameters) {
  for (const Parameter* parameter : parameters) {
    const MemoryLabel label(parameter->name());
    mean_.push_back(Tensor::empty(parameter->shape(), DType::kF32, MemoryKind::kSnapshot, home_));
  }
}

void WeightAverage::add(const std::vector<Parameter*>& parameters, const Stream& stream) {
  if (half_life_ == 0 || updates_++ % interval_ != 0) return;
  if (mean_.empty()) allocate(parameters);
  const auto samples = static_cast<double>((updates_ - 1) / interval_ + 1);
  const double kept = std::exp2(-static_cast<double>(interval_) / half_life_);
  const double share = (1 - kept) / (1 - std::pow(kept, samples));  // 1 the first time
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const StagedTensor mean(mean_[i], samples == 1 ? Use::kWrite : Use::kChange, stream),
        master(parameters[i]->master_in_place(), Use::kRead, stream);
    if (samples == 1) {
      copy(mean, master, stream);
      continue;
    }
    kernels::scale(mean, mean, static_cast<float>(1 - share), stream);
    kernels::axpy(mean, mean, static_cast<float>(share), master, stream);
  }
}

void WeightAverage::follow(const std::vector<Tensor>& directions, double length,
                           const Stream& stream) {
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const StagedTensor mean(mean_[i], Use::kChange, stream),
        direction(directions[i], Use::kRead, stream);
    kernels::axpy(mean, mean, static_cast<float>(length), direction, stream);
  }
}

void WeightAverage::exchange(const std::vector<Parameter*>& parameters, const Stream& stream) {
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const MemoryLabel label(parameters[i]->name());
    const StagedTensor mean(mean_[i], Use::kChange, stream),
        master(parameters[i]->master_in_place(), Use::kChange, stream);
    const Tensor held =
        Tensor::empty(parameters[i]->shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    copy(held, master, stream);
    copy(master, mean, stream);
    copy(mean, held, stream);
  }
}

void WeightAverage::save(State& state, const std::vector<Parameter*>& parameters) const {
  if (half_life_ == 0) return;
  state.integers[kUpdates] = updates_;
  for (std::size_t i = 0; i < mean_.size(); ++i)
    state.tensors[average_name(parameters[i]->name())] = mean_[i];
}

void WeightAverage::load(const State& state, const std::vector<Parameter*>& parameters,
                         const Stream& stream) {
  if (half_life_ == 0) return;
  updates_ = state.integer(kUpdates);
  if (updates_ == 0) return;
  if (mean_.empty()) allocate(parameters);
  for (std::size_t i = 0; i < mean_.size(); ++i)
    wait_for_copy(mean_[i], state.tensor(average_name(parameters[i]->name())), stream);
}

void WeightSnapshot::take(const std::vector<Parameter*>& parameters, const Stream& stream) {
  if (taken()) drop();
  try {
    for (const Parameter* parameter : parameters) {
      const MemoryLabel label(parameter->name());
      const Tensor master = parameter->master_in_place();
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
  require(parameters.size() == copies_.size(),
          "snapshot: restore must be called with the parameters of take");
  for (std::size_t i = 0; i < parameters.size(); ++i)
    copy_or_wait(parameters[i]->master_in_place(), copies_[i], stream);
  last_use_.record(stream);
}

void WeightSnapshot::drop() {
  last_use_.synchronize();
  copies_.clear();
  host_.pool()->trim();
}

}  // namespace hybrid_trainer
