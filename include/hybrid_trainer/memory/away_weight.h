#pragma once

#include <memory>

#include "hybrid_trainer/core/prefetcher.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/loss_model.h"

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

}  // namespace hybrid_trainer
