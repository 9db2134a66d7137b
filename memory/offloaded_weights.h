#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/network.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

/// A weight whose FP32 master weights and compute copy are in host memory or a file. acquire loads
/// a copy, and release writes it back. If writing fails, later calls throw.
class OffloadedWeight final : public WeightStorage {
 public:
  /// `master`: f32, in its primary location. The compute copy is made in the same pool.
  OffloadedWeight(Tensor master, std::shared_ptr<Prefetcher> prefetcher);
  ~OffloadedWeight() override;
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use use, const Stream& stream) noexcept override;
  Tensor master_in_place() const override;
  void compute_in(DType dtype, const Stream& stream) override;
  DType compute_dtype() const override { return copy_.home ? DType::kBF16 : DType::kF32; }
  void refresh_compute_copy(const Stream& stream) override;

 private:
  struct Staged {
    Tensor home;
    HeldValues held{};
    bool changed = false;
  };
  Staged& of(DType dtype) { return dtype == DType::kBF16 ? copy_ : master_; }
  Stream home_;
  std::shared_ptr<Prefetcher> prefetcher_;
  Staged master_, copy_;
};

/// Moves weights that have master weights to their placement in `map`, but vectors to the device.
/// On a CPU, weights in a file are prefetched from then on. Blocks.
void move_weights(LossModel& model, const DeviceMap& map, MemoryPlaces& places);

/// Stores gradients on the device only while backward adds to them. Complete gradients move to the
/// pool of `home`, and the update reads them there after the norm of all gradients is known.
class ConsumedGradients final : public GradientSink {
 public:
  /// `home` and `stream` must outlive this object.
  ConsumedGradients(const Stream& home, const Stream& stream) : home_(home), stream_(stream) {}
  void begin() {
    gradients_.clear();
    home_gradients_.clear();
  }
  Tensor gradient(const Parameter& parameter) const override;
  /// Also reserves memory in the pool of `home`, as `ready` must not throw. Throws OutOfMemory.
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  const Stream& home_;
  const Stream& stream_;
  /// Stored on the device until complete, then in the pool of home_. Allocated on first use.
  mutable std::unordered_map<const Parameter*, Tensor> gradients_;
  std::unordered_map<const Parameter*, Tensor>
      home_gradients_;  // memory reserved in the pool of home_ for gradients on the device
};

}  // namespace hybrid_trainer
