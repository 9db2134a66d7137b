#pragma once

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/activation_tape.h"
#include "hybrid_trainer/nn/segment_carry.h"

namespace hybrid_trainer {

/// The keys and values in the tokens before a segment that its queries see: as many as a window
/// reaches back, before norms and rotation. Attention runs over them and the segment's own, and what it
/// makes for tokens of earlier segments is dropped.
class CarriedKeys {
 public:
  CarriedKeys(const kernels::AttentionSpec& heads, std::int64_t head_size)
      : heads_(heads), head_size_(head_size) {}

  /// How many tokens before its own a pass's segment looks at; 0 where it is of no segment.
  std::int64_t before(const Pass& pass) const;
  /// (B, before + T, columns): rows of qkv (B, T, columns) behind those that the segment begins with,
  /// whose queries are 0. Fills in what the next segment begins with, if the pass's carry wants it.
  Tensor joined(const Tensor& qkv, const Pass& pass, const Stream& stream) const;
  /// The pass with the positions of the joined rows, if it has some.
  Pass joined(const Pass& pass, std::int64_t time, const Stream& stream) const;
  /// Positions that rotate the joined rows of `time` tokens are below this.
  std::int64_t positions_end(const Pass& pass, std::int64_t time) const;
  /// Rows x (B, T, columns) behind rows of 0; and the last T rows of such joined ones.
  Tensor behind_zeros(const Tensor& x, const Pass& pass, const Stream& stream) const;
  Tensor own(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  /// The gradient of qkv from that of what was joined: adds what the next segment makes of its last
  /// rows, and hands over that of the first ones.
  Tensor backward(const Tensor& djoined, const Pass& pass, const Stream& stream) const;

 private:
  SegmentCarry::Slot& slot(const Pass& pass) const { return pass.carry->of(this); }
  void fill_last(const Tensor& joined, const Pass& pass, const Stream& stream) const;
  std::int64_t first_column() const { return heads_.queries * head_size_; }
  std::int64_t columns() const { return 2 * heads_.keys * head_size_; }

  kernels::AttentionSpec heads_;
  std::int64_t head_size_;
};

}  // namespace hybrid_trainer
