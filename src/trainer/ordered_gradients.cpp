#include "src/trainer/ordered_gradients.h"

#include <cstring>
#include <utility>

#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {
namespace {

/// Parameters begin at whole cache lines.
constexpr std::int64_t kLineElements = 16;

std::int64_t padded_elements(const Parameter& parameter) {
  return (parameter.elements() + kLineElements - 1) / kLineElements * kLineElements;
}

}  // namespace

OrderedGradients::OrderedGradients(const std::vector<Parameter*>& parameters, Communicator& ranks,
                                   const Stream& stream)
    : parameters_(parameters), ranks_(ranks), stream_(stream) {
  for (const Parameter* parameter : parameters_) {
    first_[parameter] = elements_;
    elements_ += padded_elements(*parameter);
  }
}

void OrderedGradients::begin_leaf() {
  values_ = {};
  values_ = Tensor::empty({elements_}, DType::kF32, MemoryKind::kGradients, stream_);
  for (const Parameter* parameter : parameters_) {
    const std::int64_t begin = first_.at(parameter), end = begin + padded_elements(*parameter);
    if (const std::int64_t used = begin + parameter->elements(); used < end)
      fill_zero(values_.rows(used, end), stream_);
  }
}

void OrderedGradients::end_leaf(std::int64_t index) {
  for (const Parameter* parameter : parameters_) {
    if (parameter->gradient()) continue;
    throw Error(ExitCode::kInternal,
                concat(parameter->name(), " got no gradient in micro-batch ", index,
                       ": over ranks every trainable weight takes part in each micro-batch"));
  }
  sum_.add({0, index}, std::exchange(values_, {}), stream_);
}

void OrderedGradients::reduce(std::int64_t leaves) {
  if (ranks_.size() == 1) {
    values_ = sum_.take_total(stream_);
    return;
  }
  values_ = Tensor::empty({elements_}, DType::kF32, MemoryKind::kGradients, stream_);
  ordered_all_reduce(values_, sum_, leaves, ranks_, stream_);
}

double OrderedGradients::wait_for_mean_of(const std::vector<Tensor>& losses) const {
  std::vector<double> mine;
  for (const Tensor& loss : losses) mine.push_back(kernels::wait_for_value(loss, stream_));
  double sum = 0;
  std::size_t count = 0;
  for (const std::string& theirs :
       ranks_.host_gather({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof sum})) {
    require(theirs.size() % sizeof sum == 0, "ranks gather their losses");
    for (std::size_t at = 0; at < theirs.size(); at += sizeof sum, ++count) {
      double loss = 0;
      std::memcpy(&loss, theirs.data() + at, sizeof loss);
      sum += loss;
    }
  }
  return sum / static_cast<double>(count);
}

void OrderedGradients::free() {
  sum_ = {};
  values_ = {};
}

Tensor OrderedGradients::gradient(const Parameter& parameter) const {
  const auto first = first_.find(&parameter);
  if (!values_ || first == first_.end()) return {};
  return values_.rows(first->second, first->second + parameter.elements()).view(parameter.shape());
}

}  // namespace hybrid_trainer
