#pragma once

#include "hybrid_trainer/nn/weight.h"

namespace hybrid_trainer {

/// A weight whose f32 masters lie elsewhere, and of which the device holds only what products read,
/// in f32 or bf16. Whoever owns the masters says when what is computed with is no longer their copy.
class LiveWeight final : public WeightStorage {
 public:
  /// `master`: f32, where it lies. The device's copy is made at once, in f32.
  LiveWeight(Tensor master, const Stream& stream);
  /// f32 beside live values in bf16 are the masters where those are copied from them, else the live
  /// values; for the time of one computation, and what changes them is lost.
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use use, const Stream& stream) noexcept override;
  Tensor home_master() const override { return master_; }
  /// Keeps the values where they are in that dtype already.
  void compute_in(DType dtype, const Stream& stream) override;
  bool stays(DType dtype, const Stream&) const override { return dtype == live_.dtype(); }
  DType compute_dtype() const override { return live_.dtype(); }
  /// From now on what is computed with is the masters' copy.
  void refresh_compute_copy(const Stream& stream) override;
  /// The values that products read, f32 or bf16, to be written by their owner.
  const Tensor& live() const { return live_; }
  void set_exact(bool exact) { is_exact_ = exact; }
  /// Refreshes from masters that are loaded, instead of reading them again: of the rows from
  /// `first_row` on, as many as there are.
  void refresh_from(const Tensor& masters, const Stream& stream, std::int64_t first_row = 0);

 private:
  Tensor master_;
  Tensor live_;
  HeldValues widened_;
  bool is_exact_ = true;  // the live values are the masters', rounded
};

}  // namespace hybrid_trainer
