#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Brings weights of which each rank has a part to where they are whole, ahead of their use: what
/// followed the last two weights the last time is expected to follow again. All ranks compute with
/// the same weights in the same order, so that they expect the same.
class WeightGathers {
 public:
  /// Gathers begin while those ahead are of fewer than `bytes_ahead`; 0: none is ahead. `ranks` must
  /// outlive it.
  WeightGathers(Communicator& ranks, std::size_t bytes_ahead)
      : ranks_(ranks), bytes_ahead_(bytes_ahead) {}
  /// A weight with each rank's part of it and this rank's, which must outlive it. Returns its number.
  std::size_t add(const Shape& shape, const Parameter& mine, std::vector<Shard> parts);

  /// The whole of one, for one use of it. A collective; blocks on a processor.
  Tensor take(std::size_t weight, DType dtype, const Stream& stream);
  /// Weights change: what is ahead is of no use, and what comes next does not follow it.
  void forget(const Stream& stream);
  /// They are held in other dtypes from now on: nor is what followed what.
  void forget_order(const Stream& stream);
  /// What comes next does not follow what was before.
  void begin_pass() { before_last_ = last_ = {}; }

 private:
  struct Source {
    Shape shape;
    const Parameter* mine;
    std::vector<Shard> parts;
  };
  struct Use {
    std::size_t weight = SIZE_MAX;  // none
    DType dtype = DType::kF32;
    auto operator<=>(const Use&) const = default;
  };
  struct Gather {
    Use use;
    Tensor whole;
    CollectiveTicket job;
  };
  void drop_ahead(const Stream& stream);
  Gather begin(const Use& use, const Stream& stream) const;
  Tensor finish(const Gather& gather, const Stream& stream) const;
  void begin_what_follows(const Stream& stream);

  Communicator& ranks_;
  std::size_t bytes_ahead_;
  std::vector<Source> sources_;
  std::map<std::pair<Use, Use>, Use> follows_;
  Use before_last_, last_;
  std::deque<Gather> ahead_;
};

}  // namespace hybrid_trainer
