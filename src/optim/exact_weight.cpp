#include "src/optim/exact_weight.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hybrid_trainer {

Tensor ExactStorage::acquire(DType dtype, const Stream& stream) {
  if (dtype == DType::kF32) return here_ ? here_ : home_;
  scratch_ = Tensor::empty(home_.shape(), dtype, MemoryKind::kWorkspace, stream);
  return scratch_;
}

void ExactStorage::release(DType dtype, Use, const Stream&) noexcept {
  if (dtype != DType::kF32) scratch_ = {};
}

std::vector<std::int64_t> piece_rows(const Parameter& parameter, std::int64_t most) {
  constexpr std::int64_t kPageElements = 2048;
  const std::int64_t rows = parameter.shape()[0], width = parameter.elements() / rows;
  if (parameter.elements() <= most) return {0, rows};
  const std::int64_t aligned = kPageElements / std::gcd(width, kPageElements);
  std::int64_t step = std::max<std::int64_t>(1, most / width);
  if (step > aligned) step -= step % aligned;
  std::vector<std::int64_t> cuts;
  for (std::int64_t row = 0; row < rows; row += step) cuts.push_back(row);
  cuts.push_back(rows);
  return cuts;
}

AtHand::AtHand(ExactWeight& weight, Prefetcher* prefetcher, const Stream& host) : weight_(weight) {
  const MemoryLabel label(weight.parameter->name());
  const auto bring = [&](const Tensor& home) -> const Tensor& {
    return held_.emplace_back(home, Use::kChange, host, prefetcher != nullptr, prefetcher);
  };
  master_ = bring(weight.storage->home_master());
  std::vector<Tensor> state;
  for (const Tensor* tensor : weight.state) state.push_back(bring(*tensor));
  for (std::size_t i = 0; i < state.size(); ++i)
    homes_.push_back(std::exchange(*weight.state[i], state[i]));
  weight.storage->stand_in(master_);
}

AtHand::~AtHand() {
  weight_.storage->stand_in({});
  for (std::size_t i = 0; i < homes_.size(); ++i) *weight_.state[i] = homes_[i];
}

}  // namespace hybrid_trainer
