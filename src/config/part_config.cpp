#include "hybrid_trainer/config/part_config.h"

namespace hybrid_trainer {

const std::vector<std::string>& part_precision_names() {
  static const std::vector<std::string> names{"fp32", "bf16"};
  return names;
}

const std::vector<std::string>& part_base_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = frozen_base_names();
    std::erase(all, kFileBase);
    return all;
  }();
  return names;
}

}  // namespace hybrid_trainer
