#include "src/trainer/pending_work.h"

#include "src/trainer/asynchronous_gradients.h"
#include "src/trainer/asynchronous_optimizer.h"
#include "src/trainer/local_sgd.h"

namespace hybrid_trainer {

std::unique_ptr<PendingWork> make_pending_work(const HybridTrainerConfig& config,
                                               TrainingStep& step,
                                               std::function<void(const std::string&)> tell) {
  if (config.phases.delays_updates())
    return std::make_unique<AsynchronousOptimizer>(step, std::move(tell));
  if (config.phases.trains_locally()) return std::make_unique<LocalSgd>(config, step);
  if (config.phases.delays_gradients())
    return std::make_unique<AsynchronousGradients>(config, step);
  return std::make_unique<PendingWork>();
}

}  // namespace hybrid_trainer
