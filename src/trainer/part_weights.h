#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/nn/network.h"

namespace hybrid_trainer {

/// How a model's weights are held and adapted: as `lora` says, and otherwise where `parts` say so.
class PartWeights {
 public:
  explicit PartWeights(const HybridTrainerConfig& config)
      : lora_(config.lora), parts_(config.parts) {}

  /// The form in which the weight of this name is frozen, a name of lora.base; none: it is trained.
  std::optional<std::string> form_of(const std::string& weight) const;
  /// The rank of its adapter if another one than lora.rank.
  std::optional<std::int64_t> rank_of(const std::string& weight) const;
  /// All forms that weights may be held in.
  std::vector<std::string> forms() const;

  /// Throws ConfigError, with all problems, where a pattern matches no weight, or with lora no linear
  /// map, and where two patterns match one weight.
  void check(Network& network) const;

 private:
  const PartConfig* part_of(const std::string& weight) const;
  LoraConfig lora_;
  std::vector<PartConfig> parts_;
};

/// Gives the network what `parts` say of how its parts compute. Throws ConfigError.
void set_parts(Network& network, const std::vector<PartConfig>& parts);

}  // namespace hybrid_trainer
