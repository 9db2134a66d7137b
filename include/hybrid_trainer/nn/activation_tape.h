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
  bool training = true;                       // applies dropout
  DType dtype = DType::kF32;                  // dtype of activations and products: f32 or bf16
  const ProductRounding* products = nullptr;  // rounds operands of linear maps
  std::uint64_t seed = 0;                     // seed of dropout, with step and layer
  std::uint64_t step = 0;
  double recompute = 0;          // share of recomputed activations, see Recomputation
  std::int64_t first_token = 0;  // offset in the whole batch, in tokens
  /// If defined, kernels read `step` from here, so that recorded work draws new random numbers in
  /// each replay. (2) i32 on the stream's device, low word first.
  Tensor step_words{};
  Tensor positions{};  // positions in documents (see Batch)
  Tensor is_token{};   // marks padding (see Batch)
  Tensor types{};      // token types (see Batch)
  /// Tokens per segment, for models that support segments; 0: whole sequences.
  std::int64_t segment = 0;
  /// Number of segments at the end of a sequence that keep activations. Backward recomputes the
  /// other segments.
  std::int64_t kept_segments = 1;
  /// Label smoothing ε of cross entropies. Does not apply to preference losses and to networks with
  /// a separate setting.
  float label_smoothing = 0;
  bool loss_may_wait = false;  // the loss is not read before backward
  /// Scale of the gradient of the loss, also of auxiliary losses of layers.
  float gradient_scale = 1;
  bool counts = false;  // routers collect statistics (RoutingCount)
  /// If not null, sequences start from these states, which receive their final states.
  RowStates* states = nullptr;
  SegmentCarry* carry = nullptr;  // passes branch states between segments
};

/// Role of a saved activation in its module.
enum class ActivationRole {
  kProductInput,  // input of a product, read only to compute the gradient of its weight
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
  bool may_be_lossy = false;  // backward tolerates small errors
};

/// Activations that backward recomputes instead of storing them, ordered by the work to recompute a
/// byte. Each value includes all values before it.
enum class Rebuild { kNothing, kActivated, kNormalized, kAttended };
inline constexpr std::size_t kRebuilds = 4;

/// Recomputes an activation from a stored activation. Bit-identical on the CPU.
class Rebuilder {
 public:
  virtual ~Rebuilder() = default;
  virtual Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) = 0;
};

/// Stack of activations. Forward saves activations, and backward takes them in reverse order. Since
/// modules do not store activations themselves, the tape chooses their location and format.
class ActivationTape {
 public:
  explicit ActivationTape(const Pass& pass) : pass_(pass) {}
  virtual ~ActivationTape() = default;
  const Pass& pass() const { return pass_; }
  /// Sets the pass for the modules that run next. Parts of a network may have different passes.
  void set_pass(Pass pass) { pass_ = std::move(pass); }
  /// Sets Pass::positions, is_token and types for the modules that run next.
  void set_positions(Tensor positions, Tensor is_token = {}, Tensor types = {}) {
    pass_.positions = std::move(positions);
    pass_.is_token = std::move(is_token);
    pass_.types = std::move(types);
  }
  /// Sets Pass::gradient_scale for the rest of forward and for backward.
  void set_gradient_scale(float scale) { pass_.gradient_scale = scale; }
  /// Sets Pass::carry and Pass::first_token for the next segment.
  void set_segment(SegmentCarry* carry, std::int64_t first_token) {
    pass_.carry = carry;
    pass_.first_token = first_token;
  }
  /// Returns whether backward follows, so that modules save what it needs.
  virtual bool keeps() const = 0;
  /// Sets the activations that the following modules recompute instead of storing.
  virtual void set_rebuild(Rebuild) {}
  /// Declares that `by` can recompute `tensor` from `source`, so that the tape may drop `tensor`.
  /// Call it before saving `tensor` and after saving `source`. `by` must outlive the tape.
  virtual void declare_rebuildable(const Tensor& tensor, Rebuild as, const Tensor& source,
                                   Rebuilder& by) {
    static_cast<void>(tensor), static_cast<void>(as), static_cast<void>(source);
    static_cast<void>(by);
  }
  /// Saves an activation. A tensor that is saved several times is stored only once.
  virtual void save(Activation activation, const Stream& stream) = 0;
  /// Removes and returns the activation saved last. Its last user may overwrite it.
  virtual Tensor take(const Stream& stream) = 0;
  /// Saves a shape, for modules whose backward needs only the shape of their input.
  virtual void save_shape(const Shape&) {}
  /// Returns the shape saved last and removes it.
  virtual Shape take_shape();

 private:
  Pass pass_;
};

/// Stores every tensor unchanged. Derived tapes override `pack` and `unpack` to store another form.
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
  /// Returns the tensor to store in place of an activation. Called once for each tensor.
  virtual Tensor pack(const Activation& activation, const Stream&) { return activation.tensor; }
  /// Restores the activation from pack's result; called once. `activation.tensor` is undefined.
  virtual Tensor unpack(const Tensor& kept, const Activation&, const Stream&) { return kept; }
  virtual void ahead(const Tensor& /*kept*/, const Stream&) {}

 private:
  struct Entry {
    Activation activation;  // its tensor is undefined
    TensorIdentity identity;
    Tensor kept{};
    int consumers = 1;
    bool packed = true;
    Rebuilder* rebuilder = nullptr;  // set if the tensor was dropped
    std::size_t source = 0;          // index of the entry to recompute it from
  };
  struct Reference {
    std::size_t entry;
    Shape shape;
  };
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

/// Stores no activations; used in evaluation and in the forward passes of Predict. take() throws.
class ForwardOnlyTape final : public ActivationTape {
 public:
  using ActivationTape::ActivationTape;
  bool keeps() const override { return false; }
  void save(Activation, const Stream&) override {}
  Tensor take(const Stream& stream) override;
};

}  // namespace hybrid_trainer
