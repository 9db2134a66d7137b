#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hybrid_trainer/distributed/ordered_sum.h"
#include "hybrid_trainer/distributed/single_communicator.h"
#include "src/sharding/leaf_gradients.h"

namespace hybrid_trainer {

/// One rank alone, where a complete gradient goes on to another sink at once: each weight's
/// micro-batches are summed by themselves, in the tree's order. What is summed so far lies in the
/// memory of `home`, and one micro-batch's gradient on the device.
class LoneGradients final : public LeafGradients {
 public:
  /// All must outlive it. `total` is told of a weight's gradient as that of one micro-batch.
  LoneGradients(const std::vector<Parameter*>& parameters, SingleCommunicator& alone,
                GradientSink& total, const Stream& home, const Stream& stream);
  std::vector<std::int64_t> leaves_of_rank(std::int64_t leaves, int rank) const override;
  std::int64_t rounds(std::int64_t leaves) const override { return leaves; }
  void begin_leaf(std::optional<std::int64_t> leaf, std::int64_t leaves) override;
  void end_leaf() override;
  void reduce(std::int64_t) override {}
  void free() override;
  Tensor gradient(const Parameter& parameter) const override;
  Tensor memory_for(const Parameter& parameter, bool adds, DType writes,
                    const Stream& stream) override;
  void ready(const Parameter& parameter, const Stream& stream) override;

 private:
  void add_complete_ones();
  void add(const Parameter& parameter);
  bool is_last() const { return leaf_ + 1 == leaves_; }
  void add_partial(const Tensor& to, std::vector<Tensor>& partials) const;

  const std::vector<Parameter*>& parameters_;
  GradientSink& total_;
  const Stream& home_;
  const Stream& stream_;
  std::int64_t leaf_ = 0, leaves_ = 1;
  std::unordered_map<const Parameter*, Tensor> held_;  // of this micro-batch, but for the last one
  std::unordered_map<const Parameter*, std::vector<Tensor>> partials_;  // nodes so far, at home
  /// Summed when the next one is begun: ready is told by a destructor, which must not throw.
  std::vector<const Parameter*> complete_;
  std::unordered_set<const Parameter*> written_;  // by any micro-batch
};

}  // namespace hybrid_trainer
