#include "hybrid_trainer/optim/optimizer_config.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"adamw", "sgd", "muon"};
  return names;
}

void OptimizerConfig::collect_problems(const std::string& path,
                                       std::vector<std::string>& problems) const {
  if (betas.size() != 2) {
    problems.push_back(concat(path, ".betas: got ", betas.size(),
                              " numbers, want two, for the mean and the mean square"));
  } else if (betas[1] == 0) {
    problems.push_back(concat(path, ".betas: got 0 as the second number, want (0, 1)"));
  }
}

}  // namespace hybrid_trainer
