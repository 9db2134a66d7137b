#include <iterator>
#include <numeric>

#include "src/distributed/single_communicator.h"
#include "src/trainer/step/gradient_path.h"

namespace hybrid_trainer {

namespace {

class TreeGradients : public GradientPath {
 public:
  TreeGradients(const GradientParts& parts, std::unique_ptr<AccumulatedGradients> single)
      : GradientPath(parts), single_(std::move(single)) {}
  ~TreeGradients() override {
    for (Parameter* parameter : parts_.weights) parameter->leave(*leaves_);
  }
  /// Must be called before the first step.
  void use(std::unique_ptr<LeafGradients> leaves) { leaves_ = std::move(leaves); }
  Communicator& ranks() {
    if (parts_.ranks != nullptr) return *parts_.ranks;
    return alone_;
  }

  void prepare(const Batch& batch) override {
    if (is_single(batch)) single_->prepare(batch);
  }
  PendingGradient enqueue(const Batch& batch, const Stream& stream) override;
  double wait_for_norm(const PendingGradient& pending) override {
    return single_ ? single_->wait_for_norm(pending)
                   : hybrid_trainer::wait_for_norm(pending.squares, parts_.stream);
  }
  void free() override {
    if (single_) single_->free();
    leaves_->free();
    for (Parameter* parameter : parts_.weights) parameter->leave(*leaves_);
  }
  LeafGradients* leaves() override { return leaves_.get(); }
  ImmediateUpdates* immediate() override { return single_ ? single_->immediate() : nullptr; }

 protected:
  virtual void begin_round(bool /*others_follow*/) {}
  virtual void finish(PendingGradient& pending, const Stream& stream) {
    if (immediate() == nullptr) measure(pending, stream);
  }
  std::unique_ptr<LeafGradients> leaves_;

 private:
  bool is_single(const Batch& batch) const {
    return single_ != nullptr && parts_.micro_batches.of(batch) == 1;
  }
  /// Micro-batch `index` of `leaves`. `counted` is its leaf, or empty if its gradient is ignored.
  struct Leaf {
    std::optional<std::int64_t> counted;
    std::int64_t index, leaves;
  };
  void enqueue_leaf(const Batch& part, const Leaf& leaf, PendingGradient& pending,
                    const Stream& stream);
  void reduce(std::int64_t leaves, const std::unordered_set<Parameter*>& written,
              PendingGradient& pending, const Stream& stream);

  SingleCommunicator alone_;  // replaces null ranks
  std::unique_ptr<AccumulatedGradients> single_;
};

void TreeGradients::enqueue_leaf(const Batch& part, const Leaf& leaf, PendingGradient& pending,
                                 const Stream& stream) {
  leaves_->begin_leaf(leaf.counted, leaf.leaves);
  begin_gradients(parts_.weights, *leaves_, parts_.pass.contributions(part));
  const Tensor loss = parts_.pass.enqueue(part, {leaf.index, leaf.leaves, leaf.counted.has_value()},
                                          stream, immediate());
  end_gradients(parts_.weights, stream);
  leaves_->end_leaf();
  if (leaf.counted) pending.losses.push_back(loss);
}

PendingGradient TreeGradients::enqueue(const Batch& batch, const Stream& stream) {
  leaves_->free();
  if (is_single(batch)) return single_->enqueue(batch, stream);
  if (single_) single_->begin_elsewhere();
  const std::int64_t leaves = parts_.micro_batches.of(batch), rounds = leaves_->rounds(leaves);
  const std::vector<std::int64_t> mine = leaves_->leaves_of_rank(leaves, leaves_->ranks().rank());
  PendingGradient pending;
  std::unordered_set<Parameter*> written;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const bool counts = round < std::ssize(mine);
    const std::int64_t index = counts ? mine[static_cast<std::size_t>(round)] : mine.back();
    begin_round(round + 1 < rounds);
    for (bool is_done = false; !is_done;) {
      try {
        const Batch part =
            MemoryRetry::computed_part(parts_.micro_batches.part(batch, index), pending.retry);
        enqueue_leaf(part, {counts ? std::optional(index) : std::nullopt, index, leaves}, pending,
                     stream);
        is_done = true;
      } catch (const OutOfMemory& error) {
        if (!leaves_->involve_peers()) throw;
        parts_.retry.reduce_memory(batch, error, pending.retry, parts_.optimizer);
      }
    }
    std::copy_if(parts_.weights.begin(), parts_.weights.end(),
                 std::inserter(written, written.end()),
                 [](const Parameter* weight) { return weight->has_gradient(); });
  }
  if (pending.retry != StepRetry::kNone) {
    leaves_->drain();
  } else {
    reduce(leaves, written, pending, stream);
  }
  return pending;
}

void TreeGradients::reduce(std::int64_t leaves, const std::unordered_set<Parameter*>& written,
                           PendingGradient& pending, const Stream& stream) {
  leaves_->reduce(leaves);
  for (Parameter* weight : written) {
    if (!weight->has_gradient()) weight->mark_gradient_replayed();
  }
  finish(pending, stream);
}

/// Path with sharded gradients: after the sum, a rank has only the gradients of its shards.
class ShardedGradients final : public TreeGradients {
 public:
  explicit ShardedGradients(const GradientParts& parts) : TreeGradients(parts, nullptr) {}
  double wait_for_norm(const PendingGradient&) override {
    std::vector<Tensor> gradients;
    for (const Parameter* part : parts_.parts->parameters()) gradients.push_back(part->gradient());
    double sum = 0;
    for (const auto& chunks :
         parts_.parts->wait_for_chunk_dots(gradients, gradients, parts_.stream))
      sum += std::accumulate(chunks.begin(), chunks.end(), 0.0);
    return std::sqrt(sum);
  }
  void measure_own(PendingGradient& pending) override { measure(pending, parts_.stream); }

 private:
  void begin_round(bool others_follow) override { parts_.parts->begin_pass(others_follow); }
  void finish(PendingGradient&, const Stream&) override {
    for (Parameter* part : parts_.parts->parameters()) {
      if (part->elements() == 0) continue;
      part->begin_gradient(*leaves_, 1);
      part->mark_gradient_replayed();
    }
  }
};

}  // namespace

std::unique_ptr<GradientPath> make_tree_gradients(const GradientParts& parts,
                                                  std::int64_t bucket_bytes,
                                                  std::unique_ptr<AccumulatedGradients> single) {
  const bool is_consumed = single != nullptr && single->is_consumed();
  GradientSink* const total = is_consumed ? &single->sink() : nullptr;
  auto path = std::make_unique<TreeGradients>(parts, std::move(single));
  if (is_consumed) {
    path->use(std::make_unique<LocalGradients>(parts.weights, path->ranks(), *total,
                                               parts.places.overflow(), parts.stream));
  } else {
    path->use(std::make_unique<OrderedGradients>(parts.weights, path->ranks(), nullptr,
                                                 bucket_bytes, parts.stream));
  }
  return path;
}

std::unique_ptr<GradientPath> make_sharded_gradients(const GradientParts& parts, std::int64_t zero,
                                                     std::int64_t bucket_bytes) {
  auto path = std::make_unique<ShardedGradients>(parts);
  if (zero >= 2) {
    path->use(std::make_unique<ScatteredGradients>(*parts.parts, bucket_bytes, parts.stream));
  } else {
    path->use(std::make_unique<OrderedGradients>(parts.weights, path->ranks(), parts.parts,
                                                 bucket_bytes, parts.stream));
  }
  return path;
}

}  // namespace hybrid_trainer
