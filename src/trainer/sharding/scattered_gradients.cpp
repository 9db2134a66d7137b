#include <numeric>

#include "src/trainer/sharding/leaf_gradients.h"

namespace hybrid_trainer {

ScatteredGradients::ScatteredGradients(const WeightParts& parts, std::int64_t bucket_bytes,
                                       const Stream& stream)
    : LeafGradients(parts.ranks()),
      parts_(parts),
      bucket_bytes_(static_cast<std::size_t>(bucket_bytes)),
      stream_(stream) {
  for (std::size_t i = 0; i < parts_.weights().size(); ++i) index_[parts_.weights()[i]] = i;
}

std::vector<std::int64_t> ScatteredGradients::leaves_of_rank(std::int64_t leaves, int rank) const {
  std::vector<std::int64_t> own;
  for (std::int64_t leaf = rank; leaf < leaves; leaf += ranks().size()) own.push_back(leaf);
  return own;
}

std::int64_t ScatteredGradients::rounds(std::int64_t leaves) const {
  return (leaves + ranks().size() - 1) / ranks().size();
}

void ScatteredGradients::begin_leaf(std::optional<std::int64_t>, std::int64_t leaves) {
  leaves_ = leaves;
  buckets_ = 0;
  if (is_in_leaf_) {
    counts_ = false;
    sums_.clear();
    held_.clear();
    bucket_.clear();
    bytes_ = 0;
    return;
  }
  is_in_leaf_ = true;
  ++round_;
  sent_ = 0;
}

/// Sends a full bucket here, because `ready`, which a destructor calls, must not throw.
Tensor ScatteredGradients::memory_for(const Parameter& parameter, bool, DType, const Stream&) {
  if (bytes_ >= bucket_bytes_) end_bucket();
  Tensor& gradient = held_[&parameter];
  if (!gradient)
    gradient = Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kGradients, stream_);
  return gradient;
}

void ScatteredGradients::ready(const Parameter& parameter, const Stream&) {
  bucket_.push_back(index_.at(&parameter));
  bytes_ += held_.at(&parameter).bytes();
}

void ScatteredGradients::end_leaf() {
  if (!bucket_.empty()) end_bucket();
  check_all_have_gradients(parts_.weights());
  is_in_leaf_ = false;
}

std::vector<std::int64_t> ScatteredGradients::elements_by_rank() const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < ranks().size(); ++rank) {
    std::int64_t count = 0;
    for (const std::size_t i : bucket_) count += parts_.of(i, rank).elements();
    counts.push_back(count);
  }
  return counts;
}

/// Concatenates the parts of the bucket's gradients, in order of the rank that owns them.
Tensor ScatteredGradients::pack(std::int64_t elements) const {
  const Tensor packed = Tensor::empty({elements}, DType::kF32, MemoryKind::kWorkspace, stream_);
  std::int64_t at = 0;
  for (int rank = 0; rank < ranks().size(); ++rank) {
    for (const std::size_t i : bucket_) {
      const Shard part = parts_.of(i, rank);
      if (part.elements() == 0) continue;
      const Tensor& gradient = held_.at(parts_.weights()[i]);
      copy(packed.rows(at, at + part.elements()),
           gradient.view({gradient.elements()}).rows(part.first, part.last), stream_);
      at += part.elements();
    }
  }
  return packed;
}

/// Adds the bucket's sum and parameter places in the first micro-batch; they stay the same.
void ScatteredGradients::place_bucket() {
  if (sums_.size() != buckets_ || !counts_) return;
  std::int64_t first = 0;
  for (const std::size_t i : bucket_) {
    places_[parts_.parameters()[i]] = {buckets_, first};
    first += parts_.mine(i).elements();
  }
  sums_.emplace_back();
}

void ScatteredGradients::drop_held() {
  for (const std::size_t i : bucket_) held_.erase(parts_.weights()[i]);
}

void ScatteredGradients::end_bucket() {
  if (buckets_ == sent_) {
    send_bucket();
  } else {
    drop_held();
  }
  ++buckets_;
  bytes_ = 0;
  bucket_.clear();
}

void ScatteredGradients::send_bucket() {
  place_bucket();
  std::vector<std::int64_t> sent = elements_by_rank(), received;
  const std::int64_t mine = sent[static_cast<std::size_t>(ranks().rank())];
  if (!has_leaf(ranks().rank())) sent.assign(sent.size(), 0);
  for (int rank = 0; rank < ranks().size(); ++rank) received.push_back(has_leaf(rank) ? mine : 0);
  const auto sum = [](const auto& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  if (arrivals_.size() == kMaxInFlight) add_oldest_arrival();
  const Tensor out = sum(sent) > 0
                         ? pack(sum(sent))
                         : Tensor::empty({0}, DType::kF32, MemoryKind::kWorkspace, stream_);
  drop_held();
  const Tensor in = Tensor::empty({sum(received)}, DType::kF32, MemoryKind::kWorkspace, stream_);
  const CollectiveTicket job =
      ranks().begin([=](Communicator& all,
                        const Stream& stream) { all.all_to_all(in, received, out, sent, stream); },
                    stream_);
  arrivals_.push_back({buckets_, round_ * ranks().size(), out, in, received, job});
  ++sent_;
}

/// Adds the oldest arrival to the sums, one leaf after the other, and frees its memory.
void ScatteredGradients::add_oldest_arrival() {
  const Arrival arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  ranks().wait_for(arrival.job, stream_);
  if (!counts_) return;
  std::int64_t at = 0;
  for (std::size_t rank = 0; rank < arrival.counts.size(); ++rank) {
    const std::int64_t count = arrival.counts[rank];
    if (count == 0) continue;
    const Tensor leaf = Tensor::empty({count}, DType::kF32, MemoryKind::kGradients, stream_);
    copy(leaf, arrival.received.rows(at, at + count), stream_);
    at += count;
    const std::int64_t index = arrival.first_leaf + static_cast<std::int64_t>(rank);
    sums_[arrival.bucket].add({0, index}, leaf, stream_);
  }
}

void ScatteredGradients::drain() {
  while (!arrivals_.empty()) add_oldest_arrival();
}

void ScatteredGradients::reduce(std::int64_t) {
  drain();
  for (OrderedSum& sum : sums_) totals_.push_back(sum.take_total(stream_));
  sums_.clear();
}

void ScatteredGradients::free() {
  arrivals_.clear();
  held_.clear();
  bucket_.clear();
  bytes_ = 0;
  sums_.clear();
  totals_.clear();
  places_.clear();
  round_ = -1;
  is_in_leaf_ = false;
  counts_ = true;
}

Tensor ScatteredGradients::gradient(const Parameter& parameter) const {
  if (const auto held = held_.find(&parameter); held != held_.end()) return held->second;
  const auto place = places_.find(&parameter);
  if (place == places_.end() || totals_.empty() || parameter.elements() == 0) return {};
  const std::int64_t first = place->second.first;
  return totals_[place->second.bucket]
      .rows(first, first + parameter.elements())
      .view(parameter.shape());
}

}  // namespace hybrid_trainer
