#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/segment_carry.h"

namespace hybrid_trainer {

/// What the sequences of a batch ended with, without its gradient: the next batch's begin with it where
/// they go on with the same texts. By branch, in rows of all sequences of a batch.
class RowStates {
 public:
  /// How many sequences a batch has.
  void set_sequences(std::int64_t all) { all_ = all; }
  /// What `count` sequences from `first` on begin with, rows in `dtype`; none before the first commit.
  std::vector<SegmentCarry::State> firsts(std::int64_t first, std::int64_t count, DType dtype,
                                          const Stream& stream) const;
  /// Keeps what the sequences from `first` on ended with, until commit.
  void remember(std::int64_t first, const std::vector<SegmentCarry::State>& lasts,
                const Stream& stream);
  /// The next batch begins with what was remembered last.
  void commit();
  /// As "carried.<branch>.rows" and ".scan".
  void save(State& state) const;
  void load(const State& state, const Stream& stream);

 private:
  std::int64_t all_ = 0;
  std::vector<SegmentCarry::State> now_, next_;
};

}  // namespace hybrid_trainer
