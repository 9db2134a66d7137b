
#include "src/trainer/sharding/leaf_gradients.h"

namespace hybrid_trainer {

namespace {

/// Parameters begin at cache lines.
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
  const std::vector<WeightGroup> groups =
      parts_ == nullptr ? group_weights(parameters_, bucket_bytes) : parts_->groups();
  for (const WeightGroup& group : groups) make_bucket(group);
}

/// Returns the shards of a group within `elements`, by rank.
std::vector<Shard> OrderedGradients::shards_of(const WeightGroup& group,
                                               const Shard& elements) const {
  if (parts_ == nullptr) return equal_shards(elements.elements(), ranks().size());
  std::vector<Shard> shards;
  std::int64_t first = 0;
  for (std::size_t rank = 1; rank < group.cuts.size(); ++rank) {
    const auto& [weight, element] = group.cuts[rank];
    const std::int64_t last =
        weight == group.last ? elements.last : first_.at(parameters_[weight]) + element;
    shards.push_back({first, last - elements.first});
    first = shards.back().last;
  }
  return shards;
}

void OrderedGradients::make_bucket(const WeightGroup& group) {
  const Parameter* const last = parameters_[group.last - 1];
  const Shard elements{first_.at(parameters_[group.first]),
                       first_.at(last) + padded_elements(*last)};
  Bucket bucket{.elements = elements,
                .shards = shards_of(group, elements),
                .own_first = own_elements_,
                .parameters = group.last - group.first};
  const Shard& own = bucket.shards[static_cast<std::size_t>(ranks().rank())];
  own_elements_ += own.elements();
  for (std::size_t i = group.first; i < group.last; ++i) {
    bucket_of_[parameters_[i]] = buckets_.size();
    if (parts_ == nullptr) continue;
    const std::int64_t first = first_.at(parameters_[i]) + parts_->mine(i).first;
    const bool is_all = ranks().size() == 1;  // stays in place
    first_[parts_->parameters()[i]] =
        is_all ? first : bucket.own_first + first - elements.first - own.first;
  }
  buckets_.push_back(std::move(bucket));
}

void OrderedGradients::begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) {
  leaf_ = leaf.value();
  leaves_ = leaves;
  is_last_ = involve_peers() && leaf_ + 1 == leaves_of(leaves, ranks().rank(), ranks().size()).last;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  if (next_ > 0) return drain();  // completes transfers of memory that is overwritten now
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
  if (is_last_) --buckets_[bucket].missing;
}

/// Ends a micro-batch. On a single rank, its missing gradients count as 0.
void OrderedGradients::end_leaf() {
  if (ranks().size() > 1) check_all_have_gradients(parameters_);
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
  for (; is_last_ && next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_)
    begin(buckets_[next_]);
}

/// Returns this rank's sum of the bucket, in the memory of its partial sums.
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
  std::vector<Shard> shards = bucket.shards;
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

void OrderedGradients::drain() {
  ranks().wait_for(last_begun_, stream_);
  reductions_.clear();
}

void OrderedGradients::reduce(std::int64_t) {
  if (!involve_peers()) {
    values_ = sum_.take_total(stream_);
    return;
  }
  drain();
  const Tensor whole = sum_.nodes().empty() ? values_ : sum_.values(0);
  sum_ = {};
  values_ = whole;
  if (parts_ != nullptr) values_ = own_parts_of(whole);
}

Tensor OrderedGradients::own_parts_of(const Tensor& whole) const {
  if (ranks().size() == 1) return whole;
  const Tensor own = Tensor::empty({own_elements_}, DType::kF32, MemoryKind::kGradients, stream_);
  for (const Bucket& bucket : buckets_) {
    const Shard& part = bucket.shards[static_cast<std::size_t>(ranks().rank())];
    if (part.elements() == 0) continue;
    copy(own.rows(bucket.own_first, bucket.own_first + part.elements()),
         whole.rows(bucket.elements.first + part.first, bucket.elements.first + part.last),
         stream_);
  }
  return own;
}

std::vector<SharedElements> OrderedGradients::shared_elements() const {
  std::vector<SharedElements> all;
  for (const Bucket& bucket : buckets_) all.push_back({bucket.elements, bucket.shards});
  return all;
}

void OrderedGradients::free() {
  reductions_.clear();
  next_ = 0;
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
