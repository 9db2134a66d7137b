#pragma once

#include <deque>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Brings weights of which each rank has a part to where they are whole, ahead of their use: the
/// forward and backward pass of a micro-batch is expected to use them in the order of the last one.
/// All ranks compute with the same weights in the same order, so that they expect the same. It is no
/// Prefetcher: a gather is a collective, which no rank may leave out where its memory is short.
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
  /// A micro-batch's pass begins; `another_follows`, with the same weights. What is used without one,
  /// as in evaluations, is not ahead.
  void begin_pass(bool another_follows);
  /// What was computed since the last begin_pass or end_pass is computed again, with any numbers: what
  /// was gathered since then is not gathered again, and is 0.
  void repeat();
  /// Weights change, or are held in other dtypes: the pass is over, and what is ahead is of no use.
  void end_pass(const Stream& stream);

 private:
  struct Source {
    Shape shape;
    const Parameter* mine;
    std::vector<Shard> parts;
  };
  struct Use {
    std::size_t weight;
    DType dtype;
    bool operator==(const Use&) const = default;
  };
  struct Gather {
    Use use;
    Tensor whole;
    CollectiveTicket job;
  };
  void drop_ahead(const Stream& stream);
  Gather begin(const Use& use, const Stream& stream) const;
  void begin_what_follows(const Stream& stream);
  void begin_ahead(const Stream& stream);
  Tensor take_again(const Use& use, const Stream& stream);

  Communicator& ranks_;
  std::size_t bytes_ahead_;
  std::vector<Source> sources_;
  std::vector<Use> order_;  // of the last pass
  std::vector<Use> used_;   // in this one, if there is one
  bool is_in_pass_ = false, is_as_before_ = false, another_follows_ = false;
  std::size_t uses_ = 0, gathered_ = 0;  // see repeat
  bool owes_ahead_ = false;              // what follows the last one of them is not begun
  std::deque<Gather> ahead_;
};

}  // namespace hybrid_trainer
