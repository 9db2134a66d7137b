#include "src/sharding/weight_gathers.h"

#include <utility>

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
  std::vector<std::int64_t> counts;
  for (const Shard& part : source.parts) counts.push_back(part.elements());
  const Shard& mine = source.parts[static_cast<std::size_t>(ranks_.rank())];
  if (mine.elements() > 0) {
    const Weight own = source.mine->acquire(use.dtype, stream);
    copy_or_wait(flat.rows(mine.first, mine.last), own.tensor().view({mine.elements()}), stream);
  }
  const CollectiveTicket job =
      ranks_.begin([flat, counts](Communicator& all,
                                  const Stream& beside) { all.gather_parts(flat, counts, beside); },
                   stream);
  return {use, whole, job};
}

Tensor WeightGathers::take(std::size_t weight, DType dtype, const Stream& stream) {
  const Use use{weight, dtype};
  if (is_in_pass_) {
    is_as_before_ = is_as_before_ && used_.size() < order_.size() && order_[used_.size()] == use;
    used_.push_back(use);
  }
  if (++uses_ <= gathered_) return take_again(use, stream);
  if (!ahead_.empty() && ahead_.front().use != use) drop_ahead(stream);
  if (ahead_.empty()) ahead_.push_back(begin(use, stream));
  const Gather taken = std::move(ahead_.front());
  ahead_.pop_front();
  gathered_ = uses_;
  owes_ahead_ = true;
  begin_what_follows(stream);
  ranks_.wait_for(taken.job, stream);
  return taken.whole;
}

/// Where the first time ended before all that follows was begun, the rest of it is, as others have.
Tensor WeightGathers::take_again(const Use& use, const Stream& stream) {
  const Tensor zeros =
      Tensor::zeros(sources_[use.weight].shape, use.dtype, MemoryKind::kWorkspace, stream);
  if (uses_ == gathered_ && owes_ahead_) begin_what_follows(stream);
  return zeros;
}

/// Of this pass, and then from its beginning of another one that follows.
void WeightGathers::begin_what_follows(const Stream& stream) {
  if (is_in_pass_ && is_as_before_) begin_ahead(stream);
  owes_ahead_ = false;
}

void WeightGathers::begin_ahead(const Stream& stream) {
  std::size_t bytes = 0;
  for (const Gather& gather : ahead_) bytes += gather.whole.bytes();
  const std::size_t uses = another_follows_ ? 2 * order_.size() : order_.size();
  for (std::size_t next = used_.size() + ahead_.size(); next < uses && bytes < bytes_ahead_;
       ++next) {
    ahead_.push_back(begin(order_[next % order_.size()], stream));
    bytes += ahead_.back().whole.bytes();
  }
}

void WeightGathers::drop_ahead(const Stream& stream) {
  for (const Gather& gather : ahead_) ranks_.wait_for(gather.job, stream);
  ahead_.clear();
}

void WeightGathers::repeat() {
  used_.clear();
  uses_ = 0;
  is_as_before_ = is_in_pass_;
}

void WeightGathers::begin_pass(bool another_follows) {
  if (is_in_pass_) std::swap(order_, used_);
  used_.clear();
  is_in_pass_ = is_as_before_ = true;
  another_follows_ = another_follows;
  uses_ = gathered_ = 0;
  owes_ahead_ = false;
}

void WeightGathers::end_pass(const Stream& stream) {
  drop_ahead(stream);
  begin_pass(false);
  is_in_pass_ = false;
}

}  // namespace hybrid_trainer
