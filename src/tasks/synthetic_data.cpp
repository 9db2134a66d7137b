#include "src/tasks/synthetic_data.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::uint64_t kFirstHeldOut = std::uint64_t{1} << 40;

class DrawnBatches final : public BatchSource {
 public:
  DrawnBatches(std::shared_ptr<const SyntheticSet> set, std::int64_t size)
      : set_(std::move(set)), size_(size) {}
  Batch empty_batch(const Stream& stream) const override {
    return set_->empty_batch(size_, stream);
  }
  Batch read(std::int64_t batch_index, const Batch& memory) const override {
    set_->write(memory, static_cast<std::uint64_t>(batch_index * size_));
    return memory;
  }

 private:
  std::shared_ptr<const SyntheticSet> set_;
  std::int64_t size_;
};

class HeldOutBatches final : public EvaluationBatches {
 public:
  HeldOutBatches(std::shared_ptr<const SyntheticSet> set, std::int64_t size, std::int64_t examples,
                 const Stream& stream)
      : set_(std::move(set)),
        memory_(set_->empty_batch(std::min(size, examples), stream)),
        examples_(examples) {}
  std::int64_t batches() const override {
    return (examples_ + memory_.size() - 1) / memory_.size();
  }
  Batch batch(std::int64_t index) override {
    const std::int64_t first = index * memory_.size();
    const Batch batch = memory_.examples(0, std::min(memory_.size(), examples_ - first));
    set_->write(batch, kFirstHeldOut + static_cast<std::uint64_t>(first));
    return batch;
  }

 private:
  std::shared_ptr<const SyntheticSet> set_;
  Batch memory_;
  std::int64_t examples_;
};

}  // namespace

std::unique_ptr<const BatchSource> SyntheticData::batches(const HybridTrainerConfig& config) const {
  return std::make_unique<DrawnBatches>(set_, config.effective_batch());
}

std::unique_ptr<EvaluationBatches> SyntheticData::evaluation(const HybridTrainerConfig& config,
                                                             const Stream& stream) const {
  return std::make_unique<HeldOutBatches>(set_, config.data.batch_size, held_out_, stream);
}

std::optional<double> SyntheticData::best_loss(const HybridTrainerConfig&) const {
  const std::vector<BestLoss> best = set_->best_losses();
  double sum = 0;
  for (std::size_t i = 0; i < best.size(); ++i) sum += weights_[i] * best[i].value;
  return sum;
}

}  // namespace hybrid_trainer
