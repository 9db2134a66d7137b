#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/network.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

/// A weight whose masters and compute copy are in host memory or in a file. acquire loads a copy
/// into the stream's memory, and release writes changes back. If a write fails, later calls of
/// acquire and master_in_place throw its error.
class OffloadedWeight final : public WeightStorage {
 public:
  /// `master`: f32, in its primary location; the compute copy is made in the same pool.
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

/// Moves each weight of the model to its place in the map. Vectors go to the device; weights
/// without masters stay. Weights in a file are read ahead. Blocks.
void move_weights(LossModel& model, const DeviceMap& map, MemoryPlaces& places);

/// Gradients that are on the device only while backward adds to them. A complete one moves to the
/// pool of `home`, and the update reads it there once the norm and finiteness of all are known.
class ConsumedGradients final : public GradientSink {
 public:
  /// `home` and `stream` must outlive this object.
  ConsumedGradients(const Stream& home, const Stream& stream) : home_(home), stream_(stream) {}
  /// Drops the gradients of the last step.
  void begin() {
    gradients_.clear();
    home_gradients_.clear();
  }
  Tensor gradient(const Parameter& parameter) const override;
  /// Throws OutOfMemory if `home` has no room. ready must not throw, since a destructor calls it.
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  const Stream& home_;
  const Stream& stream_;
  /// On the device until complete, then at home; allocated on first use.
  mutable std::unordered_map<const Parameter*, Tensor> gradients_;
  std::unordered_map<const Parameter*, Tensor>
      home_gradients_;  // memory at home for gradients on the device
};

}  // namespace hybrid_trainer
