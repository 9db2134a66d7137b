#pragma once

#include <array>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// A weight that is never changed, held in one form alone. Whoever acquires it in that form's dtype
/// where it lies on the stream's device reads it there; else a copy is made for the time of the
/// computation, in the workspace. There are no masters: home_master() is undefined.
class FrozenWeight : public WeightStorage {
 public:
  Tensor acquire(DType dtype, const Stream& stream) final;
  void release(DType dtype, Use use, const Stream& stream) noexcept final;
  Tensor home_master() const final { return {}; }
  void compute_in(DType dtype, const Stream&) final { compute_dtype_ = dtype; }
  DType compute_dtype() const final { return compute_dtype_; }
  void refresh_compute_copy(const Stream&) final {}

 protected:
  /// For fixed_place: null on the host.
  static const void* place_on_device(const Tensor& tensor) {
    return tensor.device().type == DeviceType::kCuda ? tensor.raw() : nullptr;
  }

 private:
  HeldValues& of(DType dtype) { return held_[dtype == DType::kBF16 ? 1 : 0]; }
  /// The values in the dtype on the stream's device.
  virtual Tensor values_in(DType dtype, const Stream& stream) const = 0;
  std::array<HeldValues, 2> held_;
  DType compute_dtype_ = DType::kF32;
};

/// In f32 or bf16.
class FrozenRealWeight final : public FrozenWeight {
 public:
  /// `values`: f32 on the host, or simulated; rounded to the dtype, they lie in the pool of `home`.
  FrozenRealWeight(const Tensor& values, DType dtype, const Stream& home);

 private:
  Tensor values_in(DType dtype, const Stream& stream) const override;
  const void* fixed_place() const override { return place_on_device(values_); }
  bool stays(DType dtype, const Stream& stream) const override;
  Tensor values_;
};

}  // namespace hybrid_trainer
