#pragma once

#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

/// A weight whose masters and compute copy lie in host memory or in a file. While it is held, a
/// copy is in the memory of the stream; what changed goes back at the end. Copies are in stream
/// order; from and to a file they block on CUDA.
class AwayWeight final : public WeightStorage {
 public:
  /// `master`: f32, where it shall lie; the compute copy joins it in its pool.
  explicit AwayWeight(Tensor master);
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use use, const Stream& stream) noexcept override;
  Tensor home_master() const override { return master_.home; }
  void compute_in(DType dtype, const Stream& stream) override;
  DType compute_dtype() const override { return copy_.home ? DType::kBF16 : DType::kF32; }
  void refresh_compute_copy(const Stream& stream) override;

 private:
  struct Staged {
    Tensor home;
    Tensor here{};  // while it is held
    int holders = 0;
    bool changed = false;
  };
  Staged& of(DType dtype) { return dtype == DType::kBF16 ? copy_ : master_; }
  Stream home_;
  Staged master_, copy_;
};

/// Gives each weight of the model a home in the pool of `home`, but vectors, which stay on the
/// device; one that does not lie on the device already stays where it is. Blocks.
void move_weights(LossModel& model, const Stream& home, const Stream& device);

}  // namespace hybrid_trainer
