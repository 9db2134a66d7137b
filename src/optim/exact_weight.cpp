#include "exact_weight.h"

namespace hybrid_trainer {

Tensor ExactStorage::acquire(DType dtype, const Stream& stream) {
  if (dtype == DType::kF32) return here_ ? here_ : home_;
  scratch_ = Tensor::empty(home_.shape(), dtype, MemoryKind::kWorkspace, stream);
  return scratch_;
}

void ExactStorage::release(DType dtype, Use, const Stream&) noexcept {
  if (dtype != DType::kF32) scratch_ = {};
}

AtHand::AtHand(ExactWeight& weight, const Stream& host) : weight_(weight), host_(host) {
  const MemoryLabel label(weight.parameter->name());
  here_.push_back(bring(weight.storage->home_master()));
  for (const Tensor* tensor : weight.state) here_.push_back(bring(*tensor));
  weight.storage->stand_in(here_.front());
  for (std::size_t i = 0; i < weight.state.size(); ++i) *weight.state[i] = here_[i + 1];
}

Tensor AtHand::bring(const Tensor& home) {
  homes_.push_back(home);
  if (home.pool() == host_.pool()) return home;
  Tensor here = Tensor::empty_like(home, home.kind(), host_);
  copy_or_wait(here, home, host_);
  return here;
}

void AtHand::write_back() {
  for (std::size_t i = 0; i < homes_.size(); ++i) {
    if (homes_[i].raw() != here_[i].raw()) copy_or_wait(homes_[i], here_[i], host_);
  }
}

AtHand::~AtHand() {
  weight_.storage->stand_in({});
  for (std::size_t i = 0; i + 1 < homes_.size(); ++i) *weight_.state[i] = homes_[i + 1];
}

}  // namespace hybrid_trainer
