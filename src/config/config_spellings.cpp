#include "src/config/config_spellings.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/phases/skip_backward_config.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kMethod = "phases.method";
constexpr const char* kLocalSteps = "phases.local_sgd.steps";

/// What Predict goes on without names a method; other_ranks names two, of which local_steps chooses,
/// or the method itself.
std::string method_of(const std::string& ingredient, const Spelling::ValueOf& value_of) {
  if (ingredient == "backward") return "skip_backward";
  if (ingredient == "optimizer_state") return "asynchronous_optimizer";
  if (ingredient != "other_ranks") return ingredient;
  if (value_of(kLocalSteps) != "0") return "local_sgd";
  return value_of(kMethod) == "local_sgd" ? "local_sgd" : "asynchronous_gradients";
}

/// Says nothing with a method that is not over ranks.
std::string method_by_local_steps(const std::string& steps, const Spelling::ValueOf& value_of) {
  const std::string method = value_of(kMethod);
  if (method != "asynchronous_gradients" && method != "local_sgd") return "";
  return steps == "0" ? "asynchronous_gradients" : "local_sgd";
}

/// "phases.<method>.<key>" of each of the methods.
std::vector<std::string> keys_of(const char* key, const std::vector<const char*>& methods) {
  std::vector<std::string> keys;
  for (const char* method : methods) keys.push_back(concat("phases.", method, ".", key));
  return keys;
}

void add_predictions(std::vector<Spelling>& spellings) {
  SkipBackwardConfig group;
  SkipBackwardConfig::visit_fields(group, [&](const auto& field) {
    spellings.push_back({concat("phases.", field.name), keys_of(field.name, {"skip_backward"})});
  });
}

std::vector<Spelling> make_spellings() {
  constexpr const char *kOptimizer = "asynchronous_optimizer",
                       *kGradients = "asynchronous_gradients", *kLocal = "local_sgd";
  std::vector<Spelling> spellings{
      {.name = "training.memory_budget_mb",
       .keys = {"memory.device_budget"},
       .unit = "MB",
       .silent = "0",
       .once_apart_beside = "phases.ingredient"},
      {"phases.local_steps", {kLocalSteps}},
      {.name = "phases.ingredient", .keys = {kMethod}, .meaning = method_of},
      {.name = "phases.local_steps", .keys = {kMethod}, .meaning = method_by_local_steps},
      {"phases.lag", keys_of("delay", {kOptimizer, kGradients, kLocal})},
      {"phases.device_side", keys_of("device_side", {kOptimizer, kGradients})},
      {"phases.exact_state", keys_of("exact_state", {kOptimizer})},
      {"phases.worker_threads", keys_of("worker_threads", {kOptimizer})},
      {"phases.prediction_error_limit",
       keys_of("prediction_error_limit", {kOptimizer, kGradients})},
      {"phases.local_fragments", keys_of("fragments", {kLocal})},
      {"phases.exchange_bits", keys_of("exchange_bits", {kLocal})},
      {"phases.outer_learning_rate", keys_of("outer_learning_rate", {kLocal})},
      {"phases.outer_momentum", keys_of("outer_momentum", {kLocal})},
  };
  add_predictions(spellings);
  return spellings;
}

}  // namespace

const std::vector<Spelling>& config_spellings() {
  static const std::vector<Spelling> spellings = make_spellings();
  return spellings;
}

}  // namespace hybrid_trainer
