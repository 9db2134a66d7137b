#include "src/optim/sent_gradients.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/staged_tensor.h"

namespace hybrid_trainer {

void wait_and_take(const Tensor& to, const State& state, const std::string& name,
                   const Stream& stream) {
  const Tensor& from = state.tensor(name);
  if (from.shape() != to.shape() || from.dtype() != to.dtype()) {
    throw DataError(concat("the checkpoint's ", name, " is ", name_of(from.dtype()), " ",
                           from.shape().text(), ", want ", name_of(to.dtype()), " ",
                           to.shape().text(),
                           "; go on with the run's own phases and mixed_precision"));
  }
  wait_for_copy(to, from, stream);
}

void SentGradients::allocate(const Shape& shape, std::int64_t lag, const Stream& host,
                             const Stream& device) {
  lag_ = lag;
  const auto fill = [&](std::vector<Tensor>& gradients, std::int64_t count, const Stream& where) {
    while (std::ssize(gradients) < count)
      gradients.push_back(Tensor::empty(shape, DType::kF32, MemoryKind::kGradients, where));
  };
  fill(sent_, 2 * lag - 1, host);
  fill(here_, lag - 1, device);
  has_sent_.resize(sent_.size(), 0);
}

void SentGradients::free() {
  sent_.clear();
  here_.clear();
}

void SentGradients::send(const Tensor& gradient, std::int64_t step, const Stream& stream) {
  has_sent_[place(step)] = gradient ? 1 : 0;
  if (!gradient) return;
  copy_or_wait(sent_[place(step)], gradient, stream);
  if (lag_ > 1) copy_or_wait(kept_here(step), gradient, stream);
}

Tensor SentGradients::on_host(std::int64_t step) const {
  return has_sent_[place(step)] != 0 ? sent_[place(step)] : Tensor{};
}

Tensor SentGradients::on_device(std::int64_t step) const {
  return on_host(step) ? here_[static_cast<std::size_t>(step) % here_.size()] : Tensor{};
}

std::int64_t SentGradients::oldest_before(std::int64_t step) const {
  return std::max<std::int64_t>(0, step - lag_ + 1);
}

std::string SentGradients::key_at(std::int64_t step, const std::string& key) const {
  return concat("speculation.gradient.", place(step), ".", key);
}

void SentGradients::save(State& state, const std::string& key, std::int64_t step) const {
  for (std::int64_t one = oldest_before(step); one < step; ++one)
    if (on_host(one)) state.tensors[key_at(one, key)] = on_host(one);
}

void SentGradients::wait_and_load(const State& state, const std::string& key, std::int64_t step,
                                  const Stream& host, const Stream& device) {
  for (std::int64_t one = oldest_before(step); one < step; ++one) {
    const std::string name = key_at(one, key);
    has_sent_[place(one)] = state.tensors.contains(name) ? 1 : 0;
    if (!on_host(one)) continue;
    wait_and_take(sent_[place(one)], state, name, host);
    wait_for_copy(kept_here(one), sent_[place(one)], device);
  }
}

}  // namespace hybrid_trainer
