#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/memory/memory_config.h"
#include "hybrid_trainer/models/lora_config.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

/// Precisions that a part may compute in.
const std::vector<std::string>& part_precision_names();
/// Forms in which a part's frozen weights may be held.
const std::vector<std::string>& part_base_names();

/// How the parts of a model are trained whose names match a pattern. JSON object `parts`, by pattern.
struct PartConfig {
  std::string pattern{};
  std::optional<double> recompute{};
  std::optional<std::string> precision{};
  std::optional<std::int64_t> lora{};
  std::optional<std::string> base{};
  std::optional<std::string> place{};
  std::optional<std::string> optimizer{};
  std::optional<double> learning_rate{};
  std::optional<double> weight_decay{};
  std::optional<std::int64_t> state_bits{};

  static constexpr auto kName = &PartConfig::pattern;
  /// Whether its weights get adapters.
  bool is_adapted() const { return lora.value_or(0) > 0; }
  /// Whether its own weights are not trained.
  bool freezes() const { return is_adapted() || base.has_value(); }
  /// Whether its weights are updated otherwise than by the group `optimizer`.
  bool has_optimizer() const { return optimizer || learning_rate || weight_decay || state_bits; }
  /// Whether it says how the part computes (see PartSettings).
  bool computes() const { return recompute || precision; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"recompute", self.recompute,
                "Share of the part's activations that backward computes again, in place of "
                "memory.recompute.",
                Range::between(0, 1)});
    visit(Field{"precision", self.precision,
                "What the part's activations and products are in, in all phases.", Range{},
                part_precision_names()});
    visit(
        Field{"lora", self.lora,
              "Rank of the adapters that are trained on the part's linear maps, whose weights are "
              "then frozen. 0, where lora.rank is set: none. Weights outside of all such parts "
              "are trained whole, unless lora.rank is set.",
              Range::between(0, 4096)});
    visit(
        Field{"base", self.base,
              "How the part's frozen weights are held, in place of lora.base. Without adapters it "
              "freezes the part.",
              Range{}, part_base_names()});
    visit(Field{"place", self.place,
                "Where the part's matrices lie, in place of memory.weights; the first entries of "
                "memory.device_map.",
                Range{}, placement_names()});
    visit(Field{"optimizer", self.optimizer, "See optimizer.name; an entry of optimizer.groups.",
                Range{}, optimizer_names()});
    visit(Field{"learning_rate", self.learning_rate, "See optimizer.groups.", Range::at_least(0)});
    visit(Field{"weight_decay", self.weight_decay, "See optimizer.groups.", Range::at_least(0)});
    visit(Field{"state_bits", self.state_bits, "See optimizer.groups.", Range::between(8, 32)});
  }
};

}  // namespace hybrid_trainer
