
#include "src/trainer/sharding/weight_parts.h"

namespace hybrid_trainer {

std::size_t WeightGathers::add(const Shape& shape, const Parameter& mine,
                               std::vector<Shard> parts) {
  sources_.push_back({shape, &mine, std::move(parts)});
  return sources_.size() - 1;
}

/// Begins a gather. Copies this rank's shard immediately, so that it may change afterwards.
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
  const CollectiveTicket job = ranks_.begin(
      [flat, counts](Communicator& all, const Stream& background) {
        all.gather_parts(flat, counts, background);
      },
      stream);
  return {use, whole, job};
}

Tensor WeightGathers::take(std::size_t weight, DType dtype, const Stream& stream) {
  const Use use{weight, dtype};
  if (is_in_pass_) {
    repeats_order_ = repeats_order_ && used_.size() < order_.size() && order_[used_.size()] == use;
    used_.push_back(use);
  }
  if (++uses_ <= gathered_) return take_repeated(use, stream);
  if (!ahead_.empty() && ahead_.front().use != use) drop_ahead(stream);
  if (ahead_.empty()) ahead_.push_back(begin(use, stream));
  const Gather taken = std::move(ahead_.front());
  ahead_.pop_front();
  gathered_ = uses_;
  has_pending_gathers_ = true;
  begin_next_gathers(stream);
  ranks_.wait_for(taken.job, stream);
  return taken.whole;
}

/// Also begins gathers that the interrupted pass had not begun, because the other ranks began them.
Tensor WeightGathers::take_repeated(const Use& use, const Stream& stream) {
  const Tensor zeros =
      Tensor::zeros(sources_[use.weight].shape, use.dtype, MemoryKind::kWorkspace, stream);
  if (uses_ == gathered_ && has_pending_gathers_) begin_next_gathers(stream);
  return zeros;
}

/// Begins gathers of this pass, then of the next pass if one follows.
void WeightGathers::begin_next_gathers(const Stream& stream) {
  if (is_in_pass_ && repeats_order_) prefetch(stream);
  has_pending_gathers_ = false;
}

void WeightGathers::prefetch(const Stream& stream) {
  std::size_t bytes = 0;
  for (const Gather& gather : ahead_) bytes += gather.whole.bytes();
  const std::size_t uses = has_next_pass_ ? 2 * order_.size() : order_.size();
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
  repeats_order_ = is_in_pass_;
}

void WeightGathers::begin_pass(bool has_next_pass) {
  if (is_in_pass_) std::swap(order_, used_);
  used_.clear();
  is_in_pass_ = repeats_order_ = true;
  has_next_pass_ = has_next_pass;
  uses_ = gathered_ = 0;
  has_pending_gathers_ = false;
}

void WeightGathers::end_pass(const Stream& stream) {
  drop_ahead(stream);
  begin_pass(false);
  is_in_pass_ = false;
}

class WeightArrivals::ArrivingWeight final : public WeightStorage {
 public:
  ArrivingWeight(WeightArrivals& arrivals, std::size_t weight)
      : arrivals_(arrivals), weight_(weight) {}
  Tensor acquire(DType dtype, const Stream& stream) override {
    return arrived().acquire(dtype, stream);
  }
  void release(DType dtype, Use use, const Stream& stream) noexcept override {
    inner->release(dtype, use, stream);
  }
  Tensor master_in_place() const override { return arrived().master_in_place(); }
  void compute_in(DType dtype, const Stream& stream) override {
    arrived().compute_in(dtype, stream);
  }
  DType compute_dtype() const override { return inner->compute_dtype(); }
  void refresh_compute_copy(const Stream& stream) override {
    arrived().refresh_compute_copy(stream);
  }
  void offload_master(const Stream& home, const Stream& stream) override {
    arrived().offload_master(home, stream);
  }
  void restore_master() override { inner->restore_master(); }

  std::unique_ptr<WeightStorage> inner;

 private:
  WeightStorage& arrived() const {
    arrivals_.wait_for(weight_);
    return *inner;
  }

  WeightArrivals& arrivals_;
  std::size_t weight_;
};

WeightArrivals::WeightArrivals(const WeightParts& parts, std::int64_t bucket_bytes, bool background,
                               const Stream& stream)
    : parts_(parts),
      bucket_bytes_(bucket_bytes),
      stream_(stream),
      in_flight_(parts.groups().size()),
      is_copied_(parts.weights().size(), true) {
  if (!background) return;
  std::vector<std::unique_ptr<ArrivingWeight>> made;
  for (std::size_t i = 0; i < parts_.weights().size(); ++i)
    made.push_back(std::make_unique<ArrivingWeight>(*this, i));
  for (std::unique_ptr<ArrivingWeight>& arriving : made) arriving_.push_back(arriving.get());
  for (std::size_t i = 0; i < made.size(); ++i) {
    std::unique_ptr<WeightStorage> storage = std::move(made[i]);
    parts_.weights()[i]->exchange_storage(storage);
    arriving_[i]->inner = std::move(storage);
  }
}

/// Does not send changes that have not been sent; they stay local.
WeightArrivals::~WeightArrivals() {
  const bool waits = std::uncaught_exceptions() == exceptions_ && !has_changed_;
  for (std::size_t i = 0; i < arriving_.size(); ++i) {
    try {
      if (waits) wait_for(i);
    } catch (const std::exception&) {  // the run has ended and reports the reason
    }
    Parameter& weight = *parts_.weights()[i];
    if (&weight.storage() == arriving_[i]) weight.set_storage(std::move(arriving_[i]->inner));
  }
}

WeightStorage& WeightArrivals::storage(std::size_t weight) const {
  return arriving_.empty() ? parts_.weights()[weight]->storage() : *arriving_[weight]->inner;
}

WeightStorage& WeightArrivals::own_storage(std::size_t weight) {
  wait_for_group(parts_.group_of(weight));
  return storage(weight);
}

void WeightArrivals::masters_changed() {
  has_changed_ = true;
  is_copied_.assign(is_copied_.size(), false);
  if (!arriving_.empty()) return;
  send();
  for (std::size_t g = 0; g < in_flight_.size(); ++g) wait_for_group(g);
  for (std::size_t i = 0; i < is_copied_.size(); ++i) copy_if_changed(i);
}

void WeightArrivals::wait_for(std::size_t weight) {
  send();
  wait_for_group(parts_.group_of(weight));
  copy_if_changed(weight);
}

void WeightArrivals::copy_if_changed(std::size_t weight) {
  if (is_copied_[weight]) return;
  storage(weight).refresh_compute_copy(stream_);
  is_copied_[weight] = true;
}

void WeightArrivals::wait_for_group(std::size_t group) {
  if (!in_flight_[group]) return;
  parts_.ranks().wait_for(*in_flight_[group], stream_);
  in_flight_[group].reset();
  const auto none = std::none_of(in_flight_.begin(), in_flight_.end(),
                                 [](const auto& ticket) { return ticket.has_value(); });
  if (none) bucket_ = {};
}

std::int64_t WeightArrivals::elements_of(std::size_t group, int rank) const {
  std::int64_t elements = 0;
  for (std::size_t i = parts_.groups()[group].first; i < parts_.groups()[group].last; ++i)
    elements += parts_.of(i, rank).elements();
  return elements;
}

std::int64_t WeightArrivals::longest_part(std::size_t group) const {
  std::int64_t longest = 0;
  for (int rank = 0; rank < parts_.ranks().size(); ++rank)
    longest = std::max(longest, elements_of(group, rank));
  return longest;
}

/// Sends the last group first, because forward uses it first.
void WeightArrivals::send() {
  if (!has_changed_) return;
  const std::int64_t ranks = parts_.ranks().size();
  std::int64_t longest = 0;
  for (std::size_t g = 0; g < in_flight_.size(); ++g) longest = std::max(longest, longest_part(g));
  if (ranks > 1) {
    const auto each = static_cast<std::int64_t>(size_of(DType::kF32));
    const std::int64_t most = std::max<std::int64_t>(1, bucket_bytes_ / each / ranks);
    bucket_ = Tensor::empty({ranks * std::min(most, longest)}, DType::kF32, MemoryKind::kWorkspace,
                            stream_);
  }
  has_changed_ = false;
  for (std::size_t g = in_flight_.size(); g-- > 0 && ranks > 1;) begin(g);
}

void WeightArrivals::begin(std::size_t group) {
  const std::int64_t most = bucket_.elements() / parts_.ranks().size(),
                     longest = longest_part(group);
  std::vector<Round> rounds;
  for (std::int64_t first = 0; first < longest; first += most)
    rounds.push_back(make_round(group, {first, std::min(longest, first + most)}));
  in_flight_[group] = parts_.ranks().begin(
      [rounds = std::move(rounds)](Communicator& ranks, const Stream& stream) {
        for (const Round& round : rounds) {
          for (const Piece& piece : round.out) copy_or_wait(piece.to, piece.from, stream);
          ranks.gather_parts(round.all, round.counts, stream);
          for (const Piece& piece : round.in) copy_or_wait(piece.to, piece.from, stream);
        }
      },
      stream_);
}

/// Returns the transfer of elements `of_each` of every rank's shard; short shards have fewer.
WeightArrivals::Round WeightArrivals::make_round(std::size_t group, const Shard& of_each) const {
  Round round;
  std::int64_t first = 0;  // offset in the bucket
  for (int rank = 0; rank < parts_.ranks().size(); ++rank) {
    const bool is_own = rank == parts_.ranks().rank();
    visit_pieces(
        group, rank, of_each, [&](std::size_t i, const Shard& of_weight, const Shard& of_round) {
          const Tensor master = storage(i).master_in_place();
          const Tensor here =
                           master.view({master.elements()}).rows(of_weight.first, of_weight.last),
                       there = bucket_.rows(first + of_round.first, first + of_round.last);
          if (is_own) {
            round.out.push_back({there, here});
          } else {
            round.in.push_back({here, there});
          }
        });
    const std::int64_t end = std::min(of_each.last, elements_of(group, rank));
    round.counts.push_back(std::max<std::int64_t>(0, end - of_each.first));
    first += round.counts.back();
  }
  round.all = bucket_.rows(0, first);
  return round;
}

/// Calls visit(weight, its elements, elements of the round) for each piece of a rank's shard.
template <class Visit>
void WeightArrivals::visit_pieces(std::size_t group, int rank, const Shard& elements,
                                  const Visit& visit) const {
  std::int64_t before = 0;
  for (std::size_t i = parts_.groups()[group].first;
       i < parts_.groups()[group].last && before < elements.last; ++i) {
    const Shard part = parts_.of(i, rank);
    const std::int64_t begin = std::max(elements.first, before),
                       end = std::min(elements.last, before + part.elements());
    if (begin < end) {
      const std::int64_t offset = part.first - before;
      visit(i, Shard{begin + offset, end + offset},
            Shard{begin - elements.first, end - elements.first});
    }
    before += part.elements();
  }
}

}  // namespace hybrid_trainer
