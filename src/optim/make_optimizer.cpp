#include "hybrid_trainer/optim/make_optimizer.h"

#include "adamw.h"
#include "hybrid_trainer/core/error.h"
#include "muon.h"
#include "sgd.h"

namespace hybrid_trainer {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config,
                                          std::vector<Parameter*> parameters,
                                          const Stream& stream) {
  if (config.name == "adamw") return std::make_unique<AdamW>(config, std::move(parameters), stream);
  if (config.name == "sgd") return std::make_unique<Sgd>(config, std::move(parameters), stream);
  if (config.name == "muon") return std::make_unique<Muon>(config, std::move(parameters), stream);
  throw ConfigError({choice_problem("optimizer.name", config.name, optimizer_names())});
}

}  // namespace hybrid_trainer
