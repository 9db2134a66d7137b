#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/parameter.h"
#include "src/core/recording.h"
#include "src/distributed/communicator.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/sharding/weight_parts.h"
#include "src/trainer/step/micro_batches.h"

namespace hybrid_trainer {

/// Device results of one gradient measurement, to be read by the host.
struct PendingGradient {
  std::vector<Tensor> losses;          // (1) f64 each, by micro-batch
  std::vector<Tensor> squares;         // (1) f64 each: sums of squares of all gradients
  std::vector<Parameter*> written;     // parameters that got a gradient
  StepRetry retry = StepRetry::kNone;  // unless kNone, the results do not count
};

/// Recording of a step's passes. Must be dropped before weights or gradients move.
using GradientRecording = BatchRecording<PendingGradient>;

/// Common inputs of gradient paths; all must outlive them.
struct GradientParts {
  const std::vector<Parameter*>& weights;
  const MicroBatches& micro_batches;
  const MicroBatchPass& pass;
  const LearningRates& rates;
  Optimizer& optimizer;
  Communicator* ranks;  // null: a single process
  WeightParts* parts;   // shards; null: weights are replicated
  MemoryRetry& retry;
  MemoryPlaces& places;
  const Stream& stream;
};

/// Computes the gradient of a step. A path determines the memory of gradients, the order of
/// summation, and the result for norm and update. make_gradient_path chooses one.
class GradientPath {
 public:
  explicit GradientPath(const GradientParts& parts) : parts_(parts) {}
  virtual ~GradientPath() = default;
  GradientPath(const GradientPath&) = delete;
  GradientPath& operator=(const GradientPath&) = delete;

  /// Allocates memory for kept gradients, before the first attempt at a step. Throws OutOfMemory.
  virtual void prepare(const Batch& batch) = 0;
  /// Enqueues forward and backward over all of this rank's micro-batches. Throws OutOfMemory.
  virtual PendingGradient enqueue(const Batch& batch, const Stream& stream) = 0;
  /// Returns the global L2 norm of the step's gradient. Blocks.
  virtual double wait_for_norm(const PendingGradient& pending) = 0;
  virtual void free() = 0;

  /// Returns the sums of micro-batches; null if all are added to one gradient.
  virtual LeafGradients* leaves() { return nullptr; }
  bool involves_peers() { return leaves() != nullptr && leaves()->involve_peers(); }
  /// Measures this rank's own gradient, which is whole even if weights are sharded.
  virtual void measure_own(PendingGradient&) {}
  /// Returns the immediate updates (HybridTrainerConfig::updates_at_once), or null.
  virtual ImmediateUpdates* immediate() { return nullptr; }

 protected:
  /// Adds to `pending` all gradients' sums of squares, and the parameters that have a gradient.
  void measure(PendingGradient& pending, const Stream& stream) const;

  const GradientParts parts_;
};

/// Makes the configured path. Gradients are kept, consumed or rounded to bf16; or micro-batches are
/// summed as a tree, so that results do not depend on the number of ranks; or that tree is sharded.
std::unique_ptr<GradientPath> make_gradient_path(const HybridTrainerConfig& config,
                                                 const GradientParts& parts);

/// Adds the gradients of all micro-batches of a step to one gradient per weight.
class AccumulatedGradients : public GradientPath {
 public:
  using GradientPath::GradientPath;
  void prepare(const Batch& batch) override;
  PendingGradient enqueue(const Batch& batch, const Stream& stream) override;
  double wait_for_norm(const PendingGradient& pending) override;
  void free() override;

  /// Destination of gradients.
  virtual GradientSink& sink() = 0;
  /// Returns whether a complete gradient leaves the device before the next one is complete.
  virtual bool is_consumed() const { return false; }
  /// Called before another path computes the gradient and writes only its sum to sink().
  virtual void begin_elsewhere() = 0;

 private:
  virtual void allocate() = 0;
  virtual void release() = 0;
  virtual void begin() {}
};

/// Makes a path that keeps, consumes (memory.gradients) or rounds (memory.gradient_bits) gradients.
std::unique_ptr<AccumulatedGradients> make_accumulated_gradients(const HybridTrainerConfig& config,
                                                                 const GradientParts& parts);

/// Makes the path that sums micro-batches as a tree, in the same order for any number of ranks.
/// `single`, if not null, computes steps of one micro-batch, and receives the sums of other steps.
std::unique_ptr<GradientPath> make_tree_gradients(const GradientParts& parts,
                                                  std::int64_t bucket_bytes,
                                                  std::unique_ptr<AccumulatedGradients> single);
/// Makes a tree of sharded gradients (DistributedConfig::zero above 0).
std::unique_ptr<GradientPath> make_sharded_gradients(const GradientParts& parts, std::int64_t zero,
                                                     std::int64_t bucket_bytes);

}  // namespace hybrid_trainer
