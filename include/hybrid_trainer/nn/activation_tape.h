#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// What one forward pass is for.
struct Pass {
  bool training = true;       // dropout is active
  DType dtype = DType::kF32;  // of activations and products: f32 or bf16
  std::uint64_t seed = 0;     // dropout draws from (seed, step, layer)
  std::uint64_t step = 0;
  std::int64_t first_token = 0;  // offset in the whole batch, if this is one of its micro-batches
  /// If defined, holds the step, (2) i32 on the stream's device, low word first, so that recorded
  /// work draws new random numbers in each replay.
  Tensor step_words{};
};

/// What forward saves and backward takes, last in, first out. Modules keep no activations
/// themselves, so the tape decides where they live.
class ActivationTape {
 public:
  explicit ActivationTape(const Pass& pass) : pass_(pass) {}
  virtual ~ActivationTape() = default;
  const Pass& pass() const { return pass_; }
  /// False where no backward follows: modules may then skip what only backward needs.
  virtual bool keeps() const = 0;
  virtual void push(Tensor activation, const Stream& stream) = 0;
  virtual Tensor pop(const Stream& stream) = 0;

 private:
  Pass pass_;
};

/// Keeps every tensor where it is.
class PlainTape final : public ActivationTape {
 public:
  using ActivationTape::ActivationTape;
  bool keeps() const override { return true; }
  void push(Tensor activation, const Stream& stream) override;
  Tensor pop(const Stream& stream) override;
  bool empty() const { return kept_.empty(); }

 private:
  std::vector<Tensor> kept_;
};

/// Keeps nothing: for evaluation and for the forward passes of Predict. pop throws.
class ForwardOnlyTape final : public ActivationTape {
 public:
  using ActivationTape::ActivationTape;
  bool keeps() const override { return false; }
  void push(Tensor, const Stream&) override {}
  Tensor pop(const Stream& stream) override;
};

}  // namespace hybrid_trainer
