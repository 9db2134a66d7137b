#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

class WeightParts;

/// Whole weights of which each rank changes its own parts: brings others' changes to this rank while
/// it goes on. A weight that is used waits for its group (WeightGroup); in the order of their use
/// groups are sent one after the other, through memory of one bucket. It is no Prefetcher: what
/// arrives stays, and all ranks send the same groups in the same order.
class WeightArrivals {
 public:
  /// Of the weights of `parts`. `beside`: takes the place of each weight's storage until this ends;
  /// else a change has arrived when send returns.
  WeightArrivals(const WeightParts& parts, std::int64_t bucket_bytes, bool beside,
                 const Stream& stream);
  /// Waits for what is under way, unless an exception is.
  ~WeightArrivals();
  WeightArrivals(const WeightArrivals&) = delete;
  WeightArrivals& operator=(const WeightArrivals&) = delete;

  /// Own parts have changed, on all ranks.
  void masters_changed();
  /// That gets under way. A collective, unless nothing has changed.
  void send();
  /// Masters and compute copy of a whole weight are what all ranks made them. Blocks on a processor.
  /// Sends first, if nobody has.
  void wait_for(std::size_t weight);
  /// Where the weight itself lies.
  WeightStorage& storage(std::size_t weight) const;
  /// The same for one's own part of it, which may be changed: it is not being sent any more.
  WeightStorage& own_storage(std::size_t weight);

 private:
  class ArrivingWeight;
  /// What goes on beside owns its tensors: pieces of masters, and the bucket that they go through.
  struct Piece {
    Tensor to, from;
  };
  struct Round {
    Tensor all;
    std::vector<std::int64_t> counts;  // of elements, by rank
    std::vector<Piece> out, in;
  };
  void begin(std::size_t group);
  std::int64_t elements_of(std::size_t group, int rank) const;
  std::int64_t longest_part(std::size_t group) const;
  Round make_round(std::size_t group, const Shard& of_each) const;
  template <class Visit>
  void visit_pieces(std::size_t group, int rank, const Shard& elements, const Visit& visit) const;
  void wait_for_group(std::size_t group);
  void copy_if_changed(std::size_t weight);

  const WeightParts& parts_;
  std::int64_t bucket_bytes_;
  const Stream& stream_;
  const int exceptions_ = std::uncaught_exceptions();
  std::vector<ArrivingWeight*> beside_;  // owned by their parameters; none where a change blocks
  std::vector<std::optional<CollectiveTicket>> under_way_;  // by group
  std::vector<bool> is_copied_;  // whether a weight's compute copy is that of its masters
  bool has_changed_ = false;
  Tensor bucket_;  // while any group is under way
};

}  // namespace hybrid_trainer
