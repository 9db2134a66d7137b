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
  if (state_bits > 8 && state_bits < 32) {  // otherwise it is out of range
    problems.push_back(concat(path, ".state_bits: got ", state_bits, ", want 8 or 32"));
  } else if (state_bits == 8 && name == "sgd") {
    problems.push_back(concat(path,
                              ".state_bits: got 8, want 32: the momentum of sgd has no 8-bit ",
                              "form; adamw and muon have"));
  }
}

}  // namespace hybrid_trainer
