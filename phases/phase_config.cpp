#include "hybrid_trainer/phases/phase_config.h"

#include "phases/method.h"

namespace hybrid_trainer {

const std::vector<std::string>& device_side_names() {
  static const std::vector<std::string> names{"anticipated", "sketch", "selective",
                                              "none",        "shared", "momentum"};
  return names;
}

const std::vector<std::string>& exact_state_names() {
  static const std::vector<std::string> names{"host", "file"};
  return names;
}

PhaseConfig PhaseConfig::conservative() {
  PhaseConfig config;
  config.max_predict_steps = 8;
  config.skip_backward.confidence_threshold = 0.85;
  config.skip_backward.correction_interval = 4;
  config.skip_backward.probe_batches = 4;
  config.skip_backward.trial_share = 0.0025;
  config.skip_backward.evidence_sigmas = 3.0;
  return config;
}

PhaseConfig PhaseConfig::aggressive() {
  PhaseConfig config;
  config.full_steps = 10;
  config.max_predict_steps = 50;
  config.skip_backward.confidence_threshold = 0.5;
  config.skip_backward.correction_interval = 15;
  config.skip_backward.trial_share = 0.05;
  config.skip_backward.trial_steps = 5;
  config.skip_backward.evidence_sigmas = 1.0;
  return config;
}

namespace {

const MethodRow& row_of_method(const std::string& name) {
  return named_row(methods(), "phases.method", name);
}

}  // namespace

const std::vector<MethodRow>& methods() {
  static const std::vector<MethodRow> rows{skip_backward_row(), asynchronous_optimizer_row(),
                                           asynchronous_gradients_row(), local_sgd_row()};
  return rows;
}

const std::vector<std::string>& method_names() {
  static const std::vector<std::string> names = names_of(methods());
  return names;
}

const std::vector<Refusal>& refusals_of(const std::string& method) {
  return row_of_method(method).refusals();
}

std::unique_ptr<PendingWork> make_pending_work(const PendingSetup& setup) {
  return row_of_method(setup.phases.method).make_pending(setup);
}

std::unique_ptr<Optimizer> make_own_optimizer(const OptimizerSetup& setup) {
  return row_of_method(setup.phases.method).make_optimizer(setup);
}

MethodTraits PhaseConfig::traits() const {
  for (const MethodRow& row : methods()) {
    if (method == row.name) return row.traits(*this);
  }
  return {};
}

std::string PhaseConfig::predict_text() const { return row_of_method(method).text(*this); }

}  // namespace hybrid_trainer
