#include "src/trainer/weight_gathers.h"

#include "hybrid_trainer/core/staged_tensor.h"

namespace hybrid_trainer {

std::size_t WeightGathers::add(const Shape& shape, const Parameter& mine,
                               std::vector<Shard> parts) {
  sources_.push_back({shape, &mine, std::move(parts)});
  return sources_.size() - 1;
}

/// This rank's part is in its place at once, so that it may change from now on.
WeightGathers::Gather WeightGathers::begin(const Use& use, const Stream& stream) const {
  const Source& source = sources_[use.weight];
  const MemoryLabel label(source.mine->name());
  const Tensor whole = Tensor::empty(source.shape, use.dtype, MemoryKind::kWorkspace, stream);
  const Tensor flat = whole.view({whole.elements()});
  std::vector<std::pair<int, Tensor>> parts;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Shard& part = source.parts[static_cast<std::size_t>(rank)];
    if (part.elements() == 0) continue;
    parts.emplace_back(rank, flat.rows(part.first, part.last));
    if (rank != ranks_.rank()) continue;
    const Weight own = source.mine->acquire(use.dtype, stream);
    copy_or_wait(parts.back().second, own.tensor().view({part.elements()}), stream);
  }
  const CollectiveTicket job = ranks_.begin(
      [parts](Communicator& all, const Stream& beside) {
        for (const auto& [rank, values] : parts) all.broadcast(values, rank, beside);
      },
      stream);
  return {use, whole, job};
}

Tensor WeightGathers::finish(const Gather& gather, const Stream& stream) const {
  ranks_.wait_for(gather.job, stream);
  return gather.whole;
}

Tensor WeightGathers::take(std::size_t weight, DType dtype, const Stream& stream) {
  const Use use{weight, dtype};
  follows_[{before_last_, last_}] = use;
  before_last_ = std::exchange(last_, use);
  if (!ahead_.empty() && ahead_.front().use != use) drop_ahead(stream);
  if (ahead_.empty()) ahead_.push_back(begin(use, stream));
  const Gather taken = std::move(ahead_.front());
  ahead_.pop_front();
  begin_what_follows(stream);
  return finish(taken, stream);
}

void WeightGathers::begin_what_follows(const Stream& stream) {
  std::size_t bytes = 0;
  std::pair<Use, Use> end{before_last_, last_};
  for (const Gather& gather : ahead_) {
    bytes += gather.whole.bytes();
    end = {end.second, gather.use};
  }
  while (bytes < bytes_ahead_) {
    const auto next = follows_.find(end);
    if (next == follows_.end()) return;
    ahead_.push_back(begin(next->second, stream));
    bytes += ahead_.back().whole.bytes();
    end = {end.second, next->second};
  }
}

void WeightGathers::drop_ahead(const Stream& stream) {
  for (const Gather& gather : ahead_) finish(gather, stream);
  ahead_.clear();
}

void WeightGathers::forget(const Stream& stream) {
  drop_ahead(stream);
  begin_pass();
}

void WeightGathers::forget_order(const Stream& stream) {
  forget(stream);
  follows_.clear();
}

}  // namespace hybrid_trainer
