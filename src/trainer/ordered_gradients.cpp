#include "src/trainer/ordered_gradients.h"

#include <algorithm>
#include <utility>

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
                                   const WeightParts* parts, const Stream& stream)
    : LeafGradients(ranks), parameters_(parameters), parts_(parts), stream_(stream) {
  for (const Parameter* parameter : parameters_) {
    first_[parameter] = elements_;
    elements_ += padded_elements(*parameter);
  }
  if (parts_ == nullptr) return;
  const std::vector<WeightCut>& cuts = parts_->cuts();
  for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank)
    shards_.push_back({position(cuts[rank]), position(cuts[rank + 1])});
  const Shard mine = shards_[static_cast<std::size_t>(ranks.rank())];
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    first_[parts_->parameters()[i]] = first_[parameters_[i]] + parts_->mine(i).first - mine.first;
}

std::int64_t OrderedGradients::position(const WeightCut& cut) const {
  return cut.weight == parameters_.size() ? elements_
                                          : first_.at(parameters_[cut.weight]) + cut.element;
}

std::vector<std::int64_t> OrderedGradients::leaves_of_rank(std::int64_t leaves, int rank) const {
  const Shard range = leaves_of(leaves, rank, ranks().size());
  std::vector<std::int64_t> own;
  for (std::int64_t leaf = range.first; leaf < range.last; ++leaf) own.push_back(leaf);
  return own;
}

std::int64_t OrderedGradients::rounds(std::int64_t leaves) const {
  return leaves_of(leaves, ranks().rank(), ranks().size()).elements();
}

void OrderedGradients::begin_leaf(std::optional<std::int64_t> leaf, std::int64_t) {
  leaf_ = leaf.value();
  values_ = {};
  values_ = Tensor::empty({elements_}, DType::kF32, MemoryKind::kGradients, stream_);
  for (const Parameter* parameter : parameters_) {
    const std::int64_t begin = first_.at(parameter), end = begin + padded_elements(*parameter);
    if (const std::int64_t used = begin + parameter->elements(); used < end)
      fill_zero(values_.rows(used, end), stream_);
  }
}

/// One rank alone counts what a micro-batch did not write as 0.
void OrderedGradients::end_leaf() {
  if (ranks().size() > 1) check_all_got_one(parameters_);
  for (const Parameter* parameter : parameters_) {
    if (!parameter->has_gradient()) fill_zero(gradient(*parameter), stream_);
  }
  sum_.add({0, leaf_}, std::exchange(values_, {}), stream_);
}

void OrderedGradients::reduce(std::int64_t leaves) {
  if (ranks().size() == 1) {
    values_ = sum_.take_total(stream_);
  } else if (parts_ != nullptr) {
    const Shard& mine = shards_[static_cast<std::size_t>(ranks().rank())];
    values_ = Tensor::empty({mine.elements()}, DType::kF32, MemoryKind::kGradients, stream_);
    ordered_reduce_scatter(values_, shards_, sum_, leaves, ranks(), stream_);
  } else {
    values_ = Tensor::empty({elements_}, DType::kF32, MemoryKind::kGradients, stream_);
    ordered_all_reduce(values_, sum_, leaves, ranks(), stream_);
  }
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
