#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

class ProductRounding;
class RowStates;
class SegmentCarry;

/// Settings of one forward pass and its backward pass.
struct Pass {
  bool training = true;       // dropout is active
  DType dtype = DType::kF32;  // dtype of activations and products: f32 or bf16
  /// If not null, linear maps round the operands of their products.
  const ProductRounding* products = nullptr;
  std::uint64_t seed = 0;  // dropout draws from (seed, step, layer)
  std::uint64_t step = 0;
  double recompute = 0;  // see Recomputation
  /// Offset of the micro-batch or segment in the whole batch, in tokens.
  std::int64_t first_token = 0;
  /// (2) i32 on the stream's device, low word first, or undefined. Replaces `step`, so that
  /// recorded work draws new random numbers in each replay.
  Tensor step_words{};
  /// Positions of the batch (see Batch), if its sequences contain several documents.
  Tensor positions{};
  /// Marks padding (see Batch); undefined if there is none.
  Tensor is_token{};
  /// Token types of the batch (see Batch); undefined: all are 0.
  Tensor types{};
  /// Tokens per segment, for models that support segments (LossModel::supports_segments); 0: whole
  /// sequences. Only few segments' activations exist at a time (see kept_segments).
  std::int64_t segment = 0;
  /// Number of a sequence's last segments that keep activations; backward recomputes the others.
  std::int64_t kept_segments = 1;
  /// Label smoothing ε of cross entropies (see kernels::SmoothedTargets). Ignored by preference
  /// losses and by networks that set their own ε.
  float label_smoothing = 0;
  /// True if the loss is not read between forward and backward.
  bool loss_may_wait = false;
  /// Scale of the loss's gradient, which auxiliary losses of layers, such as a router's, apply too.
  float gradient_scale = 1;
  /// True if routers collect statistics (RoutingCount).
  bool counts = false;
  /// If not null, sequences start from these states and store their final ones for the next batch.
  RowStates* states = nullptr;
  /// If not null, the pass processes one segment, and branches exchange state through it.
  SegmentCarry* carry = nullptr;
};

/// Role of a saved activation in its module.
enum class ActivationRole {
  kProductInput,  // x of a product, read only by its weight's gradient
  kNormInput,
  kStatistics,  // one number per row
  kQueriesKeysValues,
  kAttentionOutput,
  kPreActivation,
  kActivated,     // the activation function's output
  kLossGradient,  // the gradient of a loss with respect to its input
  kBlockInput,    // input from which a whole block is recomputed
};

/// An activation that forward saves.
struct Activation {
  ActivationRole role;
  Tensor tensor;
  bool may_be_lossy = false;  // backward tolerates small errors in it
};

/// Activations that are recomputed from a kept one instead of being stored, ordered by the work per
/// byte; each value includes the ones before it.
enum class Rebuild { kNothing, kActivated, kNormalized, kAttended };
inline constexpr std::size_t kRebuilds = 4;

/// Recomputes an activation from a kept one; bit-identical on the CPU.
class Rebuilder {
 public:
  virtual ~Rebuilder() = default;
  virtual Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) = 0;
};

/// Stack of activations: forward saves, backward takes in reverse order. Modules store no
/// activations themselves, so the tape decides on their location and format.
class ActivationTape {
 public:
  explicit ActivationTape(const Pass& pass) : pass_(pass) {}
  virtual ~ActivationTape() = default;
  const Pass& pass() const { return pass_; }
  /// Sets the pass of the modules that run next. Parts of a network may have different settings.
  void set_pass(Pass pass) { pass_ = std::move(pass); }
  /// Sets Pass::positions, is_token and types of the modules that run next, in forward or backward.
  void set_positions(Tensor positions, Tensor is_token = {}, Tensor types = {}) {
    pass_.positions = std::move(positions);
    pass_.is_token = std::move(is_token);
    pass_.types = std::move(types);
  }
  /// Sets Pass::gradient_scale for the rest of forward and for backward.
  void set_gradient_scale(float scale) { pass_.gradient_scale = scale; }
  /// Sets Pass::carry and first_token of the next segment.
  void set_segment(SegmentCarry* carry, std::int64_t first_token) {
    pass_.carry = carry;
    pass_.first_token = first_token;
  }
  /// Returns whether backward follows. If not, modules may skip work that only backward needs.
  virtual bool keeps() const = 0;
  /// Sets the activations that the following modules recompute instead of storing.
  virtual void set_rebuild(Rebuild) {}
  /// Declares that `by` can compute `tensor`, which is saved next, from `source`, which is already
  /// saved and is taken later. The tape may then drop the tensor; `by` must outlive the tape.
  virtual void declare_rebuildable(const Tensor& tensor, Rebuild as, const Tensor& source,
                                   Rebuilder& by) {
    static_cast<void>(tensor), static_cast<void>(as), static_cast<void>(source);
    static_cast<void>(by);
  }
  /// Saves an activation. A tensor that is saved several times while it exists is stored once.
  virtual void save(Activation activation, const Stream& stream) = 0;
  /// Removes and returns the activation saved last. The last module that takes it may overwrite it.
  virtual Tensor take(const Stream& stream) = 0;
  /// Saves only the shape, for modules whose backward needs nothing else of their input.
  virtual void save_shape(const Shape&) {}
  /// Returns the shape saved last and removes it.
  virtual Shape take_shape();

 private:
  Pass pass_;
};

/// Stores every tensor unchanged. Derived tapes store something else in its place.
class PlainTape : public ActivationTape {
 public:
  explicit PlainTape(const Pass& pass, Rebuild rebuild = Rebuild::kNothing)
      : ActivationTape(pass), rebuild_(rebuild) {}
  bool keeps() const final { return true; }
  void set_rebuild(Rebuild rebuild) final { rebuild_ = rebuild; }
  void declare_rebuildable(const Tensor& tensor, Rebuild as, const Tensor& source,
                           Rebuilder& by) final;
  void save(Activation activation, const Stream& stream) final;
  Tensor take(const Stream& stream) final;
  void save_shape(const Shape& shape) final { shapes_.push_back(shape); }
  Shape take_shape() final;
  bool empty() const { return order_.empty() && shapes_.empty(); }

 protected:
  /// Returns the tensor to store for an activation; called once for each tensor.
  virtual Tensor pack(const Activation& activation, const Stream&) { return activation.tensor; }
  /// Restores the activation from pack's result; called once. `activation.tensor` is undefined.
  virtual Tensor unpack(const Tensor& kept, const Activation&, const Stream&) { return kept; }
  /// Announces the result of pack that will be unpacked next.
  virtual void ahead(const Tensor& /*kept*/, const Stream&) {}

 private:
  struct Entry {
    Activation activation;  // without the tensor
    TensorIdentity identity;
    Tensor kept{};
    int consumers = 1;
    bool packed = true;
    Rebuilder* rebuilder = nullptr;  // set if the tensor was dropped
    std::size_t source = 0;          // the entry from which it is recomputed
  };
  struct Reference {
    std::size_t entry;
    Shape shape;
  };
  /// The last declare_rebuildable call, for a tensor that is saved next.
  struct Offer {
    TensorIdentity of;
    std::size_t source;
    Rebuilder* by;
  };
  Entry* same_tensor(const Tensor& tensor, bool may_be_lossy);
  Tensor contents(Entry& entry, const Stream& stream);
  const Entry* next_packed() const;
  Rebuild rebuild_;
  std::optional<Offer> offer_;
  std::vector<Entry> entries_;
  std::vector<Reference> order_;
  std::vector<Shape> shapes_;
};

/// Stores nothing: for evaluation and the forward passes of Predict. take() throws.
class ForwardOnlyTape final : public ActivationTape {
 public:
  using ActivationTape::ActivationTape;
  bool keeps() const override { return false; }
  void save(Activation, const Stream&) override {}
  Tensor take(const Stream& stream) override;
};

}  // namespace hybrid_trainer
