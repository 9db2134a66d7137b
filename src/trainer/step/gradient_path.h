#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/parameter.h"
#include "src/core/recording.h"
#include "src/distributed/communicator.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/sharding/weight_parts.h"
#include "src/trainer/step/micro_batches.h"

namespace hybrid_trainer {

/// What one measurement of the gradient leaves on the device, for the host to read.
struct PendingGradient {
  std::vector<Tensor> losses;          // (1) f64 each, of the micro-batches
  std::vector<Tensor> squares;         // (1) f64 each: sums of squares of all gradients
  std::vector<Parameter*> written;     // parameters that got a gradient
  StepRetry retry = StepRetry::kNone;  // else nothing here counts
};

/// The forward and backward passes of a step. Before weights or gradients move, it is dropped.
using GradientRecording = BatchRecording<PendingGradient>;

/// What every path of the gradient works with; all outlive it.
struct GradientParts {
  const std::vector<Parameter*>& weights;
  const MicroBatches& micro_batches;
  const MicroBatchPass& pass;
  const LearningRates& rates;
  Optimizer& optimizer;
  Communicator* ranks;  // null: one alone
  WeightParts* parts;   // what ranks have of the weights; null: all have all of them
  MemoryRetry& retry;
  MemoryPlaces& places;
  const Stream& stream;
};

/// How a step's gradient comes about: where its micro-batches' gradients are written, in which order
/// they are summed, and what is left of them for norm and update. make_gradient_path chooses.
class GradientPath {
 public:
  explicit GradientPath(const GradientParts& parts) : parts_(parts) {}
  virtual ~GradientPath() = default;
  GradientPath(const GradientPath&) = delete;
  GradientPath& operator=(const GradientPath&) = delete;

  /// Before the first attempt at a step: makes memory for gradients that are kept. Throws
  /// OutOfMemory.
  virtual void prepare(const Batch& batch) = 0;
  /// Enqueues forward and backward over all of this rank's micro-batches. Throws OutOfMemory.
  virtual PendingGradient enqueue(const Batch& batch, const Stream& stream) = 0;
  /// Global L2 norm of the step's gradient. Blocks.
  virtual double wait_for_norm(const PendingGradient& pending) = 0;
  /// Frees the gradients; the parameters have none then.
  virtual void free() = 0;

  /// The sums of micro-batches; null where all are added to one gradient.
  virtual LeafGradients* leaves() { return nullptr; }
  bool concerns_others() { return leaves() != nullptr && leaves()->concern_others(); }
  /// Measures this rank's own gradient, which is whole though the rank updates a part of it.
  virtual void measure_own(PendingGradient&) {}
  /// The updates where each comes with its gradient (HybridTrainerConfig::updates_at_once); else null.
  virtual ImmediateUpdates* immediate() { return nullptr; }

 protected:
  /// Sums of squares of all gradients, and who has one.
  void measure(PendingGradient& pending, const Stream& stream) const;

  const GradientParts parts_;
};

/// The one that the configuration asks for: gradients that are kept, consumed, or rounded to bf16; a
/// tree of micro-batches, whose bits do not depend on the number of ranks; or such a tree of which
/// each rank has a part.
std::unique_ptr<GradientPath> make_gradient_path(const HybridTrainerConfig& config,
                                                 const GradientParts& parts);

/// The gradient of a step whose micro-batches are all added to one gradient of each weight.
class AccumulatedGradients : public GradientPath {
 public:
  using GradientPath::GradientPath;
  void prepare(const Batch& batch) override;
  PendingGradient enqueue(const Batch& batch, const Stream& stream) override;
  double wait_for_norm(const PendingGradient& pending) override;
  void free() override;

  /// Where gradients are written.
  virtual GradientSink& sink() = 0;
  /// Whether a complete gradient leaves the device before the next one is complete.
  virtual bool is_consumed() const { return false; }
  /// Another path computes the attempt that begins, and writes its sum to sink() at most.
  virtual void begin_elsewhere() = 0;

 private:
  virtual void allocate() = 0;
  virtual void release() = 0;
  /// Begins an attempt at a step.
  virtual void begin() {}
};

/// Keeps them on the device, consumes them (memory.gradients), or rounds them (memory.gradient_bits).
std::unique_ptr<AccumulatedGradients> make_accumulated_gradients(const HybridTrainerConfig& config,
                                                                 const GradientParts& parts);

/// The gradient of a step whose micro-batches are summed as a tree, on any number of ranks in one
/// order. `single`, if not null, computes steps of one micro-batch, and has what the others come to.
std::unique_ptr<GradientPath> make_tree_gradients(const GradientParts& parts,
                                                  std::int64_t bucket_bytes,
                                                  std::unique_ptr<AccumulatedGradients> single);
/// Such a tree of which each rank has its parts of the weights alone (DistributedConfig::zero above
/// 0).
std::unique_ptr<GradientPath> make_sharded_gradients(const GradientParts& parts, std::int64_t zero,
                                                     std::int64_t bucket_bytes);

}  // namespace hybrid_trainer
