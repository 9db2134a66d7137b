#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/network.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

/// A weight whose FP32 master copy and compute copy are in host memory or a file. acquire loads a
/// copy into the stream's memory; release writes it back. If that fails, later calls throw.
class OffloadedWeight final : public WeightStorage {
 public:
  /// `master` is f32 and in its primary location. The compute copy is made in the same pool.
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

/// Moves each weight of the model to its placement in `map`. Vectors go to the device; weights
/// without master copies stay. On a CPU, weights in a file will be read ahead of their use. Blocks.
void move_weights(LossModel& model, const DeviceMap& map, MemoryPlaces& places);

/// Stores gradients on the device only while backward adds to them. Complete gradients move to the
/// pool of `home`. The update reads them once the norm of all is known, and whether it is finite.
class ConsumedGradients final : public GradientSink {
 public:
  /// `home` and `stream` must outlive this object.
  ConsumedGradients(const Stream& home, const Stream& stream) : home_(home), stream_(stream) {}
  /// Frees the gradients of the last step.
  void begin() {
    gradients_.clear();
    home_gradients_.clear();
  }
  Tensor gradient(const Parameter& parameter) const override;
  /// Throws OutOfMemory if the pool of `home` has no room. It is reserved here, because ready is
  /// called by a destructor and must not throw.
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  const Stream& home_;
  const Stream& stream_;
  /// Gradients, on the device until complete, then in the pool of home_; allocated on first use.
  mutable std::unordered_map<const Parameter*, Tensor> gradients_;
  std::unordered_map<const Parameter*, Tensor>
      home_gradients_;  // memory reserved in the pool of home_ for gradients on the device
};

}  // namespace hybrid_trainer
