#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

class ProductRounding;
class RowStates;
class SegmentCarry;

/// Purpose of one forward pass.
struct Pass {
  bool training = true;       // dropout is active
  DType dtype = DType::kF32;  // of activations and products: f32 or bf16
  /// If not null, linear maps round what they multiply.
  const ProductRounding* products = nullptr;
  std::uint64_t seed = 0;  // dropout draws from (seed, step, layer)
  std::uint64_t step = 0;
  double recompute = 0;  // see Recomputation
  /// Offset in the whole batch, if this is one of its micro-batches or a segment.
  std::int64_t first_token = 0;
  /// If defined, holds the step, (2) i32 on the stream's device, low word first, so that recorded
  /// work draws new random numbers in each replay.
  Tensor step_words{};
  /// Positions of the batch (see Batch), if its sequences are several documents.
  Tensor positions{};
  /// Marks padding (see Batch); undefined: there is none.
  Tensor is_token{};
  /// Tokens of a sequence whose activations are there at a time, where the model can go over a longer
  /// one in segments (LossModel::goes_in_segments); 0: all.
  std::int64_t segment = 0;
  /// How many segments at the end keep their activations from forward on; backward computes the others
  /// again.
  std::int64_t kept_segments = 1;
  /// ε: cross entropies have targets that share so much of their weight among all classes (see
  /// kernels::SmoothedTargets). Losses of pairs and those of networks with their own ε do not heed it.
  float label_smoothing = 0;
  /// Whether nobody reads the loss between forward and backward.
  bool loss_may_wait = false;
  /// Factor of the gradients of losses that layers add, such as a router's: that of the loss itself.
  float gradient_scale = 1;
  /// Whether routers count what they do (RoutingCount).
  bool counts = false;
  /// If not null, sequences begin with these states, and leave theirs for the next batch.
  RowStates* states = nullptr;
  /// If not null, this pass is of one segment, and branches begin and end as it says.
  SegmentCarry* carry = nullptr;
};

/// Role of a saved activation in its module.
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
  bool may_be_lossy = false;  // backward stands small errors in it
};

/// Activations that are not kept, because their module computes them again from one that is. In the
/// order of the work for a byte; each includes those before.
enum class Rebuild { kNothing, kActivated, kNormalized, kAttended };
inline constexpr std::size_t kRebuilds = 4;

/// Computes an activation again from one that is kept, to the same bits on a processor.
class Rebuilder {
 public:
  virtual ~Rebuilder() = default;
  virtual Tensor rebuild(const Tensor& source, const Pass& pass, const Stream& stream) = 0;
};

/// Stack of activations: forward saves, backward takes, last in, first out. Modules keep no
/// activations themselves, so the tape decides where they live and in what form.
class ActivationTape {
 public:
  explicit ActivationTape(const Pass& pass) : pass_(pass) {}
  virtual ~ActivationTape() = default;
  const Pass& pass() const { return pass_; }
  /// The pass of what runs next, forward and backward: a part of a network may have one of its own.
  void set_pass(Pass pass) { pass_ = std::move(pass); }
  /// Pass::positions and is_token of what runs next, forward and backward.
  void set_positions(Tensor positions, Tensor is_token = {}) {
    pass_.positions = std::move(positions);
    pass_.is_token = std::move(is_token);
  }
  /// Pass::gradient_scale, from forward on.
  void set_gradient_scale(float scale) { pass_.gradient_scale = scale; }
  /// Pass::carry and first_token of the segment that runs next.
  void set_segment(SegmentCarry* carry, std::int64_t first_token) {
    pass_.carry = carry;
    pass_.first_token = first_token;
  }
  /// False where no backward follows: modules may then skip what only backward needs.
  virtual bool keeps() const = 0;
  /// Sets what is not kept of the modules that run from now on.
  virtual void set_rebuild(Rebuild) {}
  /// Says that `tensor`, which is saved next, follows from `source`, which is saved already and taken
  /// later. From then on the tape may go without it; `by` must outlive the tape.
  virtual void can_rebuild(const Tensor& tensor, Rebuild as, const Tensor& source, Rebuilder& by) {
    static_cast<void>(tensor), static_cast<void>(as), static_cast<void>(source);
    static_cast<void>(by);
  }
  /// A tensor that is saved again while it lives is kept once.
  virtual void save(Activation activation, const Stream& stream) = 0;
  /// Takes the activation that was saved last, in its shape and dtype. Whoever takes a tensor for
  /// the last time may overwrite it.
  virtual Tensor take(const Stream& stream) = 0;
  /// Saves sizes alone, for backward of a module that needs no more of its input.
  virtual void save_shape(const Shape&) {}
  /// Takes those that were saved last, as take does.
  virtual Shape take_shape();

 private:
  Pass pass_;
};

/// Keeps every tensor where it is. Derived tapes keep something else in its place.
class PlainTape : public ActivationTape {
 public:
  explicit PlainTape(const Pass& pass, Rebuild rebuild = Rebuild::kNothing)
      : ActivationTape(pass), rebuild_(rebuild) {}
  bool keeps() const final { return true; }
  void set_rebuild(Rebuild rebuild) final { rebuild_ = rebuild; }
  void can_rebuild(const Tensor& tensor, Rebuild as, const Tensor& source, Rebuilder& by) final;
  void save(Activation activation, const Stream& stream) final;
  Tensor take(const Stream& stream) final;
  void save_shape(const Shape& shape) final { shapes_.push_back(shape); }
  Shape take_shape() final;
  bool empty() const { return order_.empty() && shapes_.empty(); }

 protected:
  /// What is kept of an activation; called once for each tensor.
  virtual Tensor pack(const Activation& activation, const Stream&) { return activation.tensor; }
  /// The activation again, from what pack returned; called once. `activation.tensor` is undefined.
  virtual Tensor unpack(const Tensor& kept, const Activation&, const Stream&) { return kept; }
  /// Says what of pack will be unpacked next.
  virtual void ahead(const Tensor& /*kept*/, const Stream&) {}

 private:
  struct Entry {
    Activation activation;  // without the tensor
    TensorIdentity identity;
    Tensor kept{};
    int takers = 1;
    bool packed = true;
    Rebuilder* rebuilder = nullptr;  // where it was not kept
    std::size_t source = 0;          // the entry from which that computes it
  };
  struct Reference {
    std::size_t entry;
    Shape shape;
  };
  /// What was said last of a tensor that is saved next.
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

/// Keeps nothing: for evaluation and for the forward passes of Predict. take throws.
class ForwardOnlyTape final : public ActivationTape {
 public:
  using ActivationTape::ActivationTape;
  bool keeps() const override { return false; }
  void save(Activation, const Stream&) override {}
  Tensor take(const Stream& stream) override;
};

}  // namespace hybrid_trainer
