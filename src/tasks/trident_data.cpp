#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/data/synthetic/trident_set.h"
#include "src/tasks/network_data.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kFirstHeldOut = std::int64_t{1} << 40;

static_assert(TridentConfig::kEventKinds == TridentSet::kEventKinds);
static_assert(TridentConfig::kPlumeKinds == kPlumeKinds);

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

/// Returns "events.loss 0.889, plumes.loss 0.0969, constant.loss 0.04".
std::string best_text(const SyntheticSet& set) {
  std::string text;
  for (const BestLoss& best : set.best_losses())
    text += concat(text.empty() ? "" : ", ", best.name, " ", brief(best.value));
  return text;
}

}  // namespace

DatasetPart SyntheticData::validation(const HybridTrainerConfig&) const {
  return {set_, kFirstHeldOut, held_out_};
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
  std::string text =
      concat("scenes generated from the seed; the lowest possible losses are ", best_text(*set));
  return std::make_unique<SyntheticData>(std::move(set), std::move(text),
                                         config.model.trident.held_out);
}

}  // namespace hybrid_trainer
