#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/data/synthetic/trident_set.h"
#include "src/tasks/network_data.h"

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

static_assert(TridentConfig::kEventKinds == TridentSet::kEventKinds);
static_assert(TridentConfig::kPlumeKinds == kPlumeKinds);

/// What the net of this config reads.
TridentShape trident_shape(const ModelConfig& model) {
  const TridentConfig& sizes = model.trident;
  return {.video = {.frames = sizes.frames,
                    .height = sizes.video_size,
                    .width = sizes.video_size,
                    .channels = sizes.video_channels},
          .visible_channels = sizes.visible_channels,
          .plumes = {.size = sizes.image_size, .grid = sizes.grid},
          .kinematic_steps = sizes.kinematic_steps,
          .kinematic_channels = sizes.kinematic_channels,
          .cooling_samples = sizes.cooling_samples,
          .geo_numbers = sizes.geo_numbers,
          .events = model.context};
}

/// "events.loss 0.889, plumes.loss 0.0969, constant.loss 0.04".
std::string best_text(const SyntheticSet& set) {
  std::string text;
  for (const BestLoss& best : set.best_losses())
    text += concat(text.empty() ? "" : ", ", best.name, " ", brief(best.value));
  return text;
}

}  // namespace

std::unique_ptr<const BatchSource> SyntheticData::batches(const HybridTrainerConfig& config) const {
  return std::make_unique<DrawnBatches>(set_, config.effective_batch());
}

std::unique_ptr<EvaluationBatches> SyntheticData::evaluation(const HybridTrainerConfig& config,
                                                             const Stream& stream) const {
  return std::make_unique<HeldOutBatches>(set_, config.data.batch_size, held_out_, stream);
}

std::optional<double> SyntheticData::best_loss(const HybridTrainerConfig&) const {
  double sum = 0;
  for (const BestLoss& best : set_->best_losses()) sum += best.value;
  return sum;
}

std::unique_ptr<NetworkData> trident_data(const NetworkDataSource& source) {
  const HybridTrainerConfig& config = source.config;
  if (!source.data.empty()) {
    const Stream host(MemoryPool::create("host")), nowhere(make_device_pool({.simulated = true}));
    const Batch form = make_network(config.model, 0, nowhere)->empty_batch({.examples = 1}, host);
    return array_data(source, form,
                      {{"event_tokens", 0, TridentConfig::kEventKinds},
                       {"event_targets", kNoTarget, TridentConfig::kEventKinds},
                       {"plume_kinds", -1, TridentConfig::kPlumeKinds - 1}});
  }
  auto set = std::make_unique<TridentSet>(trident_shape(config.model),
                                          static_cast<std::uint64_t>(config.training.seed));
  std::string text = concat("scenes that the seed draws; the best losses are ", best_text(*set));
  return std::make_unique<SyntheticData>(std::move(set), std::move(text),
                                         config.model.trident.held_out);
}

}  // namespace hybrid_trainer
