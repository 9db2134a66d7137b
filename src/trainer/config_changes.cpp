#include "src/trainer/config_changes.h"

#include <algorithm>
#include <map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/io/json_fields.h"

namespace hybrid_trainer {
namespace {

/// Keys, and groups with a dot at the end, that affect how further steps are done but not what the
/// saved state means.
constexpr const char* kMayChange[] = {"training.steps",
                                      "training.evaluate_every_steps",
                                      "training.threads",
                                      "training.memory_budget_mb",
                                      "training.cuda_graphs",
                                      "optimizer.learning_rate",
                                      "optimizer.weight_decay",
                                      "optimizer.clip_norm",
                                      "schedule.",
                                      "divergence.loss_sigmas",
                                      "divergence.gradient_factor",
                                      "divergence.vanishing_factor",
                                      "divergence.oscillation",
                                      "divergence.max_skipped_updates",
                                      "predict_aware_memory.",
                                      "checkpoint.",
                                      "device"};

/// Decided once: the checkpoint's choice stays.
constexpr const char* kKept = "mixed_precision.";

bool may_change(const std::string& path) {
  return std::any_of(std::begin(kMayChange), std::end(kMayChange), [&](const std::string& allowed) {
    return allowed.ends_with('.') ? path.starts_with(allowed) : path == allowed;
  });
}

void collect_leaves(const FieldNode& node, const std::string& path,
                    std::map<std::string, std::string>& leaves) {
  for (const FieldNode& field : node.fields) {
    const std::string at = path.empty() ? field.name : path + "." + field.name;
    if (field.is_group()) {
      collect_leaves(field, at, leaves);
    } else {
      leaves[at] = field_text(field);
    }
  }
}

std::map<std::string, std::string> leaves_of(const HybridTrainerConfig& config) {
  std::map<std::string, std::string> leaves;
  collect_leaves(field_tree(config), "", leaves);
  return leaves;
}

}  // namespace

ConfigChanges config_changes(const HybridTrainerConfig& saved, const HybridTrainerConfig& now) {
  ConfigChanges changes;
  const auto before = leaves_of(saved), after = leaves_of(now);
  for (const auto& [path, is] : after) {
    const std::string& was = before.at(path);
    if (was == is) continue;
    if (path.starts_with(kKept)) {
      changes.told.push_back(concat(path, ": the run's choice stays (\"", was, "\" when it began, ",
                                    "\"", is, "\" was asked for)"));
    } else if (may_change(path)) {
      changes.told.push_back(concat(path, ": ", was, " until now, ", is, " from here on"));
    } else {
      changes.refused.push_back(concat(path, ": the run was saved with ", was, ", got ", is));
    }
  }
  return changes;
}

void check_changes(const ConfigChanges& changes) {
  if (changes.refused.empty()) return;
  std::vector<std::string> problems = changes.refused;
  problems.emplace_back(
      "what was saved means something else then: go on with the run's own configuration "
      "(--resume --run RUN alone takes it), or begin another run");
  throw ConfigError(std::move(problems));
}

}  // namespace hybrid_trainer
