#pragma once

#include "src/core/recording.h"
#include "src/trainer/step/micro_batches.h"

namespace hybrid_trainer {

/// Results of one gradient measurement on the device, which the host reads later.
struct PendingGradient {
  std::vector<Tensor> losses;          // (1) f64 each, by micro-batch
  std::vector<Tensor> squares;         // (1) f64 each: sums of squares of all gradients
  std::vector<Parameter*> written;     // parameters that got a gradient
  StepRetry retry = StepRetry::kNone;  // if not kNone, the results are invalid
};

/// Recording of a step's passes. Drop it before weights or gradients move.
using GradientRecording = BatchRecording<PendingGradient>;

/// Common inputs of gradient paths. They must outlive the paths.
struct GradientParts {
  const std::vector<Parameter*>& weights;
  const MicroBatches& micro_batches;
  const MicroBatchPass& pass;
  const LearningRates& rates;
  Optimizer& optimizer;
  Communicator* ranks;  // null for a single process
  WeightParts* parts;   // shards; null if weights are replicated
  MemoryRetry& retry;
  MemoryPlaces& places;
  const Stream& stream;
};

/// Computes the gradient of a step. Implementations differ in memory and order of summation.
class GradientPath {
 public:
  explicit GradientPath(const GradientParts& parts) : parts_(parts) {}
  virtual ~GradientPath() = default;
  GradientPath(const GradientPath&) = delete;
  GradientPath& operator=(const GradientPath&) = delete;

  /// Allocates memory for kept gradients, before the first attempt at a step. Throws OutOfMemory.
  virtual void prepare(const Batch& batch) = 0;
  /// If the loss compares the texts of all micro-batches of a step, computes it and returns the
  /// batch with the gradients of their outputs (see TextLoss::compute); else returns the batch.
  /// Compares only this rank's texts unless involves_peers(). Sets `retry` to the strongest request
  /// of all ranks; unless it is kNone, the result does not count. Collective if involves_peers().
  /// Throws OutOfMemory.
  Batch with_output_gradients(const Batch& batch, StepRetry& retry);
  /// Enqueues forward and backward over all of this rank's micro-batches. Throws OutOfMemory.
  virtual PendingGradient enqueue(const Batch& batch, const Stream& stream) = 0;
  virtual double wait_for_norm(const PendingGradient& pending) = 0;  // blocks
  virtual void free() = 0;

  /// Returns the sums over micro-batches, or null if all micro-batches are added to one gradient.
  virtual LeafGradients* leaves() { return nullptr; }
  bool involves_peers() { return leaves() != nullptr && leaves()->involve_peers(); }
  /// Measures this rank's own gradient, which is whole even if weights are sharded.
  virtual void measure_own(PendingGradient&) {}
  /// Returns the immediate updates (HybridTrainerConfig::updates_at_once), or null.
  virtual ImmediateUpdates* immediate() { return nullptr; }

 protected:
  /// Adds the gradients' sums of squares, and the parameters that have a gradient, to `pending`.
  void measure(PendingGradient& pending, const Stream& stream) const;

  const GradientParts parts_;
};

/// Makes the configured path. It keeps, consumes or rounds gradients; or it sums micro-batches as a
/// tree, so that results do not depend on the number of ranks; or it shards that tree.
std::unique_ptr<GradientPath> make_gradient_path(const HybridTrainerConfig& config,
                                                 const GradientParts& parts);

class AccumulatedGradients : public GradientPath {
 public:
  using GradientPath::GradientPath;
  void prepare(const Batch& batch) override;
  PendingGradient enqueue(const Batch& batch, const Stream& stream) override;
  double wait_for_norm(const PendingGradient& pending) override;
  void free() override;

  virtual GradientSink& sink() = 0;
  /// Returns whether each complete gradient leaves the device before the next one is complete.
  virtual bool is_consumed() const { return false; }
  /// Called before another path computes the gradient and writes only the sum to sink().
  virtual void begin_elsewhere() = 0;

 private:
  virtual void allocate() = 0;
  virtual void release() = 0;
  virtual void begin() {}
};

/// Makes the path that sums micro-batches as a tree, in the same order for any number of ranks.
/// `single`, if any, computes steps of one micro-batch and receives the sums of other steps.
std::unique_ptr<GradientPath> make_tree_gradients(const GradientParts& parts,
                                                  std::int64_t bucket_bytes,
                                                  std::unique_ptr<AccumulatedGradients> single);
/// Makes a tree of sharded gradients (DistributedConfig::zero above 0).
std::unique_ptr<GradientPath> make_sharded_gradients(const GradientParts& parts, std::int64_t zero,
                                                     std::int64_t bucket_bytes);

}  // namespace hybrid_trainer
