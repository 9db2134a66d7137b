#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/network.h"
#include "src/core/prefetcher.h"

namespace hybrid_trainer {

/// A weight whose masters and compute copy lie in host memory or in a file. While it is held, a
/// copy is in the memory of the stream; what changed goes back at the end. Where a copy to its home
/// fails, acquire and home_master throw that from then on.
class AwayWeight final : public WeightStorage {
 public:
  /// `master`: f32, where it shall lie; the compute copy joins it in its pool.
  AwayWeight(Tensor master, std::shared_ptr<Prefetcher> prefetcher);
  ~AwayWeight() override;
  Tensor acquire(DType dtype, const Stream& stream) override;
  void release(DType dtype, Use use, const Stream& stream) noexcept override;
  Tensor home_master() const override;
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

/// Gives each weight of the model its home by the map, but vectors, which go to the device, and what has no
/// masters, which stays. Of those in a file what follows is read ahead. Blocks.
void move_weights(LossModel& model, const DeviceMap& map, MemoryPlaces& places);

/// Gradients that are on the device only while backward adds to them: one that is complete goes to
/// the pool of `home`, where the update finds it once norm and finiteness of all are known.
class ConsumedGradients final : public GradientSink {
 public:
  /// Both must outlive it.
  ConsumedGradients(const Stream& home, const Stream& stream) : home_(home), stream_(stream) {}
  /// Forgets those of the last step.
  void begin() {
    gradients_.clear();
    away_.clear();
  }
  Tensor gradient(const Parameter& parameter) const override;
  /// Throws OutOfMemory where home has no room, which ready, told by a destructor, must not.
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  const Stream& home_;
  const Stream& stream_;
  /// On the device, then at home; made when it is first asked for.
  mutable std::unordered_map<const Parameter*, Tensor> gradients_;
  std::unordered_map<const Parameter*, Tensor> away_;  // for those on the device
};

}  // namespace hybrid_trainer
