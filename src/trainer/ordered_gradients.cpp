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
                                   const WeightParts* parts, std::int64_t bucket_bytes,
                                   const Stream& stream)
    : LeafGradients(ranks), parameters_(parameters), parts_(parts), stream_(stream) {
  for (const Parameter* parameter : parameters_) {
    first_[parameter] = elements_;
    elements_ += padded_elements(*parameter);
  }
  make_buckets(bucket_bytes);
  if (parts_ == nullptr) return;
  const std::vector<WeightCut>& cuts = parts_->cuts();
  for (std::size_t rank = 0; rank + 1 < cuts.size(); ++rank)
    shards_.push_back({position(cuts[rank]), position(cuts[rank + 1])});
  const Shard mine = shards_[static_cast<std::size_t>(ranks.rank())];
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    first_[parts_->parameters()[i]] = first_[parameters_[i]] + parts_->mine(i).first - mine.first;
}

/// Backward comes to the last parameter first.
void OrderedGradients::make_buckets(std::int64_t bucket_bytes) {
  const std::int64_t enough = bucket_bytes / static_cast<std::int64_t>(size_of(DType::kF32));
  bool is_full = true;
  for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
    const std::int64_t first = first_.at(*parameter);
    if (is_full) buckets_.push_back({{first, first + padded_elements(**parameter)}});
    Bucket& bucket = buckets_.back();
    bucket.elements.first = first;
    ++bucket.parameters;
    bucket_of_[*parameter] = buckets_.size() - 1;
    is_full = bucket.elements.elements() >= enough;
  }
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

void OrderedGradients::begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) {
  leaf_ = leaf.value();
  leaves_ = leaves;
  is_last_ = ranks().size() > 1 && !keeps_own_ &&
             leaf_ + 1 == leaves_of(leaves, ranks().rank(), ranks().size()).last;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  values_ = {};
  values_ = Tensor::empty({elements_}, DType::kF32, MemoryKind::kGradients, stream_);
  for (const Parameter* parameter : parameters_) {
    const std::int64_t begin = first_.at(parameter), end = begin + padded_elements(*parameter);
    if (const std::int64_t used = begin + parameter->elements(); used < end)
      fill_zero(values_.rows(used, end), stream_);
  }
}

Tensor OrderedGradients::memory_for(const Parameter& parameter, bool, DType, const Stream&) {
  begin_complete_buckets();
  return gradient(parameter);
}

void OrderedGradients::ready(const Parameter& parameter, const Stream&) {
  const std::size_t bucket = bucket_of_.at(&parameter);
  if (is_last_ && --buckets_[bucket].missing == 0) complete_.push_back(bucket);
}

/// One rank alone counts what a micro-batch did not write as 0.
void OrderedGradients::end_leaf() {
  if (ranks().size() > 1) check_all_got_one(parameters_);
  for (const Parameter* parameter : parameters_) {
    if (!parameter->has_gradient()) fill_zero(gradient(*parameter), stream_);
  }
  if (is_last_) {
    begin_complete_buckets();
  } else {
    sum_.add({0, leaf_}, std::exchange(values_, {}), stream_);
  }
}

void OrderedGradients::begin_complete_buckets() {
  for (const std::size_t bucket : std::exchange(complete_, {})) begin(buckets_[bucket]);
}

/// By rank, of the bucket's elements.
std::vector<Shard> OrderedGradients::shards_of(const Bucket& bucket) const {
  const auto [first, last] = bucket.elements;
  if (parts_ == nullptr) return equal_shards(last - first, ranks().size());
  std::vector<Shard> shards;
  for (const Shard& shard : shards_)
    shards.push_back({std::clamp(shard.first, first, last) - first,
                      std::clamp(shard.last, first, last) - first});
  return shards;
}

/// This rank's, where the sums of its micro-batches lie.
OrderedSum OrderedGradients::sum_of(const Bucket& bucket) const {
  const auto [first, last] = bucket.elements;
  OrderedSum sum;
  for (std::size_t i = 0; i < sum_.nodes().size(); ++i)
    sum.add(sum_.nodes()[i], sum_.values(i).rows(first, last), stream_);
  sum.add({0, leaf_}, values_.rows(first, last), stream_);
  return sum;
}

void OrderedGradients::begin(const Bucket& bucket) {
  OrderedSum mine = sum_of(bucket);
  const Tensor total = mine.values(0);
  std::vector<Shard> shards = shards_of(bucket);
  const Shard part = shards[static_cast<std::size_t>(ranks().rank())];
  const Tensor own = total.rows(part.first, part.last);
  reductions_.push_back(std::make_shared<OrderedReduction>(std::move(shards), std::move(mine),
                                                           leaves_, ranks(), stream_));
  const bool everywhere = parts_ == nullptr;
  last_begun_ = ranks().begin(
      [reduction = reductions_.back(), total, own, everywhere](Communicator& all,
                                                               const Stream& stream) {
        reduction->run(own, all, stream);
        if (everywhere) all.all_gather(total, own, stream);
      },
      stream_);
}

void OrderedGradients::reduce(std::int64_t) {
  if (ranks().size() == 1 || keeps_own_) {
    values_ = sum_.take_total(stream_);
    return;
  }
  ranks().wait_for(last_begun_, stream_);
  reductions_.clear();
  const Tensor whole = sum_.nodes().empty() ? values_ : sum_.values(0);
  sum_ = {};
  values_ = whole;
  if (parts_ == nullptr) return;
  const Shard& mine = shards_[static_cast<std::size_t>(ranks().rank())];
  values_ = Tensor::empty({mine.elements()}, DType::kF32, MemoryKind::kGradients, stream_);
  if (mine.elements() > 0) copy(values_, whole.rows(mine.first, mine.last), stream_);
}

void OrderedGradients::free() {
  reductions_.clear();
  complete_.clear();
  is_last_ = false;
  sum_ = {};
  values_ = {};
}

Tensor OrderedGradients::part_of(const Tensor& sum, const Parameter& parameter) const {
  const auto first = first_.find(&parameter);
  if (!sum || first == first_.end()) return {};
  return sum.rows(first->second, first->second + parameter.elements()).view(parameter.shape());
}

}  // namespace hybrid_trainer
