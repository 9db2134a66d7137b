#include "src/trainer/pending_work.h"

#include "src/trainer/asynchronous_gradients.h"
#include "src/trainer/asynchronous_optimizer.h"
#include "src/trainer/local_sgd.h"

namespace hybrid_trainer {

std::unique_ptr<PendingWork> make_pending_work(const HybridTrainerConfig& config,
                                               TrainingStep& step,
                                               std::function<void(const std::string&)> tell) {
  if (config.phases.lacks_optimizer_state())
    return std::make_unique<AsynchronousOptimizer>(step, std::move(tell));
  if (config.phases.takes_local_steps()) return std::make_unique<LocalSgd>(config, step);
  if (config.phases.lacks_other_ranks())
    return std::make_unique<AsynchronousGradients>(config, step);
  return std::make_unique<PendingWork>();
}

}  // namespace hybrid_trainer
