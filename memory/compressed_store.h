#pragma once

#include "memory/content_store.h"

namespace hybrid_trainer {

/// Keeps f32 tensors where they are, in one byte an element and a scale for each block of 256. What
/// comes back differs by at most 0.71 % of the largest magnitude in its block, by half of that
/// where nothing is negative; a NaN or an infinity comes back as NaN in its whole block. Tensors of
/// other types, and those that are not to be rounded, keep their memory and their bits. Source: Dettmers et al. 2022, "8-bit optimizers
/// via block-wise quantization".
class CompressedStore final : public ContentStore {
 public:
  void keep(const std::vector<OffloadSlot>& slots, const Stream& stream) override;
  void write_to(const std::vector<Tensor>& tensors, const Stream& stream) override;
  /// The kernels run here, on the threads that a step's do.
  bool blocks(const Stream&) const override { return false; }
  void forget() override { kept_.clear(); }
  Restored restored() const override { return Restored::kRounded; }

 private:
  struct Kept {
    Tensor codes;   // or the tensor itself
    Tensor scales;  // undefined for the tensor itself
    SlotRounding rounding;
  };
  std::vector<Kept> kept_;
};

}  // namespace hybrid_trainer
