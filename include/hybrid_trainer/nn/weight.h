#pragma once

#include <utility>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Storage of a weight's values, which may move while they are not acquired.
class WeightStorage {
 public:
  virtual ~WeightStorage() = default;
  /// Returns the FP32 master weights or the bf16 compute copy, for work that is enqueued on
  /// `stream` before `release`. The argument `use` of `release` states whether the work changes
  /// them. Throws Error if there is no copy in this dtype.
  virtual Tensor acquire(DType dtype, const Stream& stream) = 0;
  virtual void release(DType dtype, Use use, const Stream& stream) noexcept = 0;
  /// Computes y = x·wᵀ + bias + residual from the stored form. Returns false if that is not faster.
  virtual bool multiply(const Tensor& /*y*/, const Tensor& /*x*/, const Tensor& /*bias*/,
                        const Tensor& /*residual*/, const Stream&) {
    return false;
  }
  /// Sets whether `multiply` may round operands, which only generation allows.
  virtual void round_inputs(bool /*rounds*/) {}
  /// Sets y[n] to row indices[n] of the stored form. Returns false if that is not faster.
  virtual bool look_up(const Tensor& /*y*/, const Tensor& /*indices*/, const Stream&) {
    return false;
  }
  /// Returns the FP32 masters at their location. Use them only to copy while they are not acquired.
  /// Call refresh_compute_copy after writing. Undefined for a frozen weight without master weights.
  virtual Tensor master_in_place() const = 0;
  /// Sets the dtype that products read. bf16 creates a rounded compute copy; f32 frees it.
  virtual void compute_in(DType dtype, const Stream& stream) = 0;
  virtual DType compute_dtype() const = 0;
  /// Returns the values' address if it is fixed, also after `release`, or null if `acquire` moves
  /// them or blocks. Recorded work may read them until it or master_in_place changes.
  virtual const void* fixed_place() const { return nullptr; }
  /// Returns whether values of this dtype are always on the device, so `acquire` does nothing.
  virtual bool stays(DType, const Stream&) const { return false; }
  /// Updates the compute copy, if any, from the FP32 master weights.
  virtual void refresh_compute_copy(const Stream& stream) = 0;
  /// Offloads the FP32 masters to the memory of `home` if there is a compute copy; `acquire` of f32
  /// then returns the offloaded tensor. If it throws OutOfMemory, nothing has moved.
  virtual void offload_master(const Stream&, const Stream&) {}
  /// Restores offloaded master weights at the next acquire.
  virtual void restore_master() {}
};

/// Reference-counted values, which exist while they have holders.
class HeldValues {
 public:
  /// Adds a holder and returns the values. Calls make() for the first holder.
  template <class Make>
  Tensor acquire(const Make& make) {
    if (holders_ == 0) values_ = make();
    ++holders_;
    return values_;
  }
  /// Removes a holder. Returns the values if no holder remains, else an undefined tensor.
  Tensor release() noexcept { return --holders_ == 0 ? std::exchange(values_, {}) : Tensor{}; }

 private:
  Tensor values_;
  int holders_ = 0;
};

/// FP32 master weights and an optional bf16 compute copy in device memory.
class ResidentWeight final : public WeightStorage {
 public:
  /// `master`: the f32 weights.
  explicit ResidentWeight(Tensor master) : master_(std::move(master)) {}
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType, Use, const Stream&) noexcept override {}
  Tensor master_in_place() const override { return master(); }
  void compute_in(DType dtype, const Stream& stream) override;
  DType compute_dtype() const override { return copy_ ? DType::kBF16 : DType::kF32; }
  const void* fixed_place() const override {
    return !master_ ? nullptr : copy_ ? copy_.raw() : master_.raw();
  }
  bool stays(DType dtype, const Stream&) const override {
    return dtype == DType::kF32 ? master_.defined() : copy_.defined();
  }
  void refresh_compute_copy(const Stream& stream) override;
  void offload_master(const Stream& home, const Stream& stream) override;
  void restore_master() override { restored_ = true; }

 private:
  const Tensor& master() const { return master_ ? master_ : offloaded_; }
  Tensor master_;  // undefined while offloaded
  Tensor copy_;    // bf16, or undefined
  /// The offloaded masters. Kept after a restore, since pending copies may still read this memory,
  /// and reused.
  Tensor offloaded_;
  bool restored_ = true;
};

/// RAII wrapper of a weight's acquired values. The destructor releases them.
class [[nodiscard]] Weight {
 public:
  Weight() = default;  // no values
  /// Wraps values that no storage owns.
  explicit Weight(Tensor values) : values_(std::move(values)) {}
  Weight(WeightStorage& storage, DType dtype, Use use, const Stream& stream)
      : values_(storage.acquire(dtype, stream)), use_(use), storage_(&storage), stream_(&stream) {}
  Weight(Weight&& other) noexcept
      : values_(std::move(other.values_)),
        use_(other.use_),
        storage_(std::exchange(other.storage_, nullptr)),
        stream_(other.stream_) {}
  Weight& operator=(Weight&&) = delete;
  ~Weight() {
    if (storage_ != nullptr) storage_->release(values_.dtype(), use_, *stream_);
  }
  const Tensor& tensor() const { return values_; }
  operator const Tensor&() const { return values_; }

 private:
  Tensor values_;
  Use use_ = Use::kRead;
  WeightStorage* storage_ = nullptr;
  const Stream* stream_ = nullptr;
};

/// A weight whose FP32 masters are elsewhere; the device stores only live values, f32 or bf16. The
/// masters' owner calls set_exact(false) if live values are not copies of the masters.
class LiveWeight final : public WeightStorage {
 public:
  /// Copies `master`, the f32 weights in any location, to the device in f32.
  LiveWeight(Tensor master, const Stream& stream);
  /// Returns the live values. If they are bf16 and `dtype` is f32, returns a temporary copy of the
  /// master weights or, if the live values are not exact, of the widened live values. Changes to
  /// the copy are lost.
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use, const Stream&) noexcept override {
    if (dtype != live_.dtype()) widened_.release();
  }
  Tensor master_in_place() const override { return master_; }
  void compute_in(DType dtype, const Stream& stream) override;
  bool stays(DType dtype, const Stream&) const override { return dtype == live_.dtype(); }
  DType compute_dtype() const override { return live_.dtype(); }
  void refresh_compute_copy(const Stream& stream) override {
    refresh_from(StagedTensor(master_, Use::kRead, stream, master_.pool() != stream.pool()),
                 stream);
  }
  /// Returns the values that products read, f32 or bf16. Their owner writes them.
  const Tensor& live() const { return live_; }
  void set_exact(bool exact) { is_exact_ = exact; }
  /// Copies loaded master weights to the live values, beginning at row `first_row`.
  void refresh_from(const Tensor& masters, const Stream& stream, std::int64_t first_row = 0);

 private:
  Tensor master_;
  Tensor live_;
  HeldValues widened_;
  bool is_exact_ = true;  // the live values are the rounded master weights
};

}  // namespace hybrid_trainer
