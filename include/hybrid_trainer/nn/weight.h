#pragma once

#include <utility>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Where a weight's values live. Everyone reaches them through Parameter::acquire, for the time of
/// one computation, so that between two they may be elsewhere.
class WeightStorage {
 public:
  virtual ~WeightStorage() = default;
  /// The values for work enqueued on `stream` until release: f32 are the masters, bf16 is the
  /// compute copy. What changes them says so. Throws Error where there is no such copy.
  virtual Tensor acquire(DType dtype, const Stream& stream) = 0;
  virtual void release(DType dtype, Use use, const Stream& stream) noexcept = 0;
  /// y = x·wᵀ + bias + residual (see kernels::linear_forward) from the form in which the values are
  /// held, without making them. Where that would not be faster, returns false and does nothing.
  virtual bool multiply(const Tensor& /*y*/, const Tensor& /*x*/, const Tensor& /*bias*/,
                        const Tensor& /*residual*/, const Stream&) {
    return false;
  }
  /// Whether `multiply` may round what it multiplies, so that it is faster: where text is written, and
  /// not where a loss is measured. At first it may not.
  virtual void round_inputs(bool /*rounds*/) {}
  /// y[n] = the row of that number, from the form in which the values are held; else as multiply.
  /// y: (N, columns), indices: (N) i32.
  virtual bool look_up(const Tensor& /*y*/, const Tensor& /*indices*/, const Stream&) {
    return false;
  }
  /// The masters where they lie, for copies to and from them while nobody holds them. After a write
  /// to them, make the compute copy anew. Undefined for a frozen weight without masters.
  virtual Tensor home_master() const = 0;
  /// bf16: keeps a compute copy beside the masters, equal to them from now on; f32: frees it.
  virtual void compute_in(DType dtype, const Stream& stream) = 0;
  virtual DType compute_dtype() const = 0;
  /// Where the values lie that acquire gives; null where acquire moves them, or waits. They stay
  /// there after release. Recorded work (see Recording) may read them again as long as neither this
  /// nor home_master has moved.
  virtual const void* fixed_place() const { return nullptr; }
  /// Whether acquire gives values of the dtype where they lie on the stream's device, without memory or
  /// work for it, so that many can be held at a time.
  virtual bool stays(DType, const Stream&) const { return false; }
  /// Makes the compute copy, if there is one, anew from the masters.
  virtual void refresh_compute_copy(const Stream& stream) = 0;
  /// Where a compute copy stands in for the masters: moves them to the memory of `home`, on the
  /// host, where acquire gives them. Throws OutOfMemory, and then they stay. Elsewhere, and by
  /// default, does nothing.
  virtual void park_master(const Stream&, const Stream&) {}
  /// Parked masters come back when they are acquired next.
  virtual void recall_master() {}
};

/// Values that exist while anybody holds them.
class HeldValues {
 public:
  /// make() gives them to the first.
  template <class Make>
  Tensor acquire(const Make& make) {
    if (holders_ == 0) values_ = make();
    ++holders_;
    return values_;
  }
  /// The values, once nobody holds them; undefined before.
  Tensor release() noexcept { return --holders_ == 0 ? std::exchange(values_, {}) : Tensor{}; }

 private:
  Tensor values_;
  int holders_ = 0;
};

/// Masters and compute copy in the memory of the device.
class ResidentWeight final : public WeightStorage {
 public:
  /// `master`: f32.
  explicit ResidentWeight(Tensor master) : master_(std::move(master)) {}
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType, Use, const Stream&) noexcept override {}
  Tensor home_master() const override { return master(); }
  void compute_in(DType dtype, const Stream& stream) override;
  DType compute_dtype() const override { return copy_ ? DType::kBF16 : DType::kF32; }
  const void* fixed_place() const override {
    return !master_ ? nullptr : copy_ ? copy_.raw() : master_.raw();
  }
  bool stays(DType dtype, const Stream&) const override {
    return dtype == DType::kF32 ? master_.defined() : copy_.defined();
  }
  void refresh_compute_copy(const Stream& stream) override;
  void park_master(const Stream& home, const Stream& stream) override;
  void recall_master() override { recalled_ = true; }

 private:
  const Tensor& master() const { return master_ ? master_ : parked_; }
  Tensor master_;  // undefined while it is parked
  Tensor copy_;    // bf16, or undefined
  /// The master's memory while it is parked; kept for the next time, as it may still be read.
  Tensor parked_;
  bool recalled_ = true;
};

/// A weight's values, held until this is destroyed.
class [[nodiscard]] Weight {
 public:
  Weight() = default;  // no values
  /// Values that are nobody's but this one's.
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

/// A weight whose f32 masters lie elsewhere, and of which the device holds only what products read,
/// in f32 or bf16. Whoever owns the masters says when what is computed with is no longer their copy.
class LiveWeight final : public WeightStorage {
 public:
  /// `master`: f32, where it lies. The device's copy is made at once, in f32.
  LiveWeight(Tensor master, const Stream& stream);
  /// f32 beside live values in bf16 are the masters where those are copied from them, else the live
  /// values; for the time of one computation, and what changes them is lost.
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use, const Stream&) noexcept override {
    if (dtype != live_.dtype()) widened_.release();
  }
  Tensor home_master() const override { return master_; }
  /// Keeps the values where they are in that dtype already.
  void compute_in(DType dtype, const Stream& stream) override;
  bool stays(DType dtype, const Stream&) const override { return dtype == live_.dtype(); }
  DType compute_dtype() const override { return live_.dtype(); }
  /// From now on what is computed with is the masters' copy.
  void refresh_compute_copy(const Stream& stream) override {
    refresh_from(StagedTensor(master_, Use::kRead, stream, master_.pool() != stream.pool()),
                 stream);
  }
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
