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
  double recompute = 0;  // share of a model's blocks whose activations backward computes again
  std::int64_t first_token = 0;  // offset in the whole batch, if this is one of its micro-batches
  /// If defined, holds the step, (2) i32 on the stream's device, low word first, so that recorded
  /// work draws new random numbers in each replay.
  Tensor step_words{};
};

/// What a saved activation is in its module.
enum class ActivationRole {
  kProductInput,  // x of a product, which only its weight's gradient reads
  kNormInput,
  kStatistics,  // one number a row
  kQueriesKeysValues,
  kAttentionOutput,
  kPreActivation,
  kActivated,     // the activation function's output
  kLossGradient,  // already a gradient, of a loss's input
  kBlockInput,    // from which a whole block is computed again
};

/// One thing that forward saves.
struct Activation {
  ActivationRole role;
  Tensor tensor;
  bool may_be_lossy = false;    // backward stands small errors in it
  bool may_be_rebuilt = false;  // its module can do without it, at the cost of computing it again
};

/// Whether what may be rebuilt is kept.
enum class Rebuild { kNo, kYes };

/// What forward saves and backward takes, last in, first out. Modules keep no activations
/// themselves, so the tape decides where they live and in what form.
class ActivationTape {
 public:
  explicit ActivationTape(const Pass& pass) : pass_(pass) {}
  virtual ~ActivationTape() = default;
  const Pass& pass() const { return pass_; }
  /// False where no backward follows: modules may then skip what only backward needs.
  virtual bool keeps() const = 0;
  virtual Rebuild rebuild() const { return Rebuild::kNo; }
  /// A tensor that is saved again while it lives is kept once.
  virtual void save(Activation activation, const Stream& stream) = 0;
  /// What was saved last and not taken, in its shape and dtype; undefined for what may be rebuilt
  /// and was not kept. Whoever takes a tensor for the last time may overwrite it.
  virtual Tensor take(const Stream& stream) = 0;

 private:
  Pass pass_;
};

/// Keeps every tensor where it is. Derived tapes keep something else in its place.
class PlainTape : public ActivationTape {
 public:
  explicit PlainTape(const Pass& pass, Rebuild rebuild = Rebuild::kNo)
      : ActivationTape(pass), rebuild_(rebuild) {}
  bool keeps() const final { return true; }
  Rebuild rebuild() const final { return rebuild_; }
  void save(Activation activation, const Stream& stream) final;
  Tensor take(const Stream& stream) final;
  bool empty() const { return order_.empty(); }

 protected:
  /// What is kept of an activation; called once for each tensor.
  virtual Tensor pack(const Activation& activation, const Stream&) { return activation.tensor; }
  /// The activation again, from what pack returned; called once. `activation.tensor` is undefined.
  virtual Tensor unpack(const Tensor& kept, const Activation&, const Stream&) { return kept; }

 private:
  struct Entry {
    Activation activation;  // without the tensor
    TensorIdentity identity;
    Tensor kept;
    int takers;
    bool packed = true;
  };
  struct Reference {
    std::size_t entry;
    Shape shape;
  };
  Entry* same_tensor(const Activation& activation);
  Rebuild rebuild_;
  std::vector<Entry> entries_;
  std::vector<Reference> order_;
};

/// Keeps nothing: for evaluation and for the forward passes of Predict. take throws.
class ForwardOnlyTape final : public ActivationTape {
 public:
  using ActivationTape::ActivationTape;
  bool keeps() const override { return false; }
  void save(Activation, const Stream&) override {}
  Tensor take(const Stream& stream) override;
};

}  // namespace hybrid_trainer
