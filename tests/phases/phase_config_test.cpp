#include "hybrid_trainer/phases/phase_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

/// A text of all observable results of a run.
std::string trace_of(const PhaseMachine::Setup& setup, double direction_scale, double noise) {
  QuadraticBowl::Options slow;
  slow.learning_rate = 0.005;
  slow.direction_scale = direction_scale;
  BowlRun run(slow, setup, noise);
  std::string trace;
  for (const PhaseOutcome& outcome : run.run(400)) {
    trace +=
        concat(name_of(outcome.phase), " ", outcome.loss, " ", outcome.cost, " ",
               outcome.confidence.value_or(-1), " ", outcome.kept_fraction, " ", outcome.lag, "\n");
  }
  return trace;
}

PhaseMachine::Setup base_setup() {
  PhaseMachine::Setup setup;
  setup.phases.warmup_steps = 10;
  setup.phases.full_steps = 10;
  setup.phases.skip_backward.confidence_threshold = 0.3;
  setup.phases.skip_backward.trial_share = 0.2;
  return setup;
}

using Change = std::function<void(PhaseConfig&)>;
struct Flip {
  const char* field;
  Change change;
  Change first = [](auto&) {};  // settings that the field needs to have an effect
  double direction_scale = 1;
  double noise = 0.02;
};

const Change kNothing = [](PhaseConfig&) {};

const Change kLate = [](PhaseConfig& c) { c.method = "asynchronous_optimizer"; };

const Flip kFlips[] = {
    {"warmup_steps", [](auto& c) { c.warmup_steps = 20; }},
    {"full_steps", [](auto& c) { c.full_steps = 14; }},
    {"max_predict_steps", [](auto& c) { c.max_predict_steps = 2; }},
    {"correct_steps", [](auto& c) { c.correct_steps = 2; }},
    {"confidence_threshold", [](auto& c) { c.skip_backward.confidence_threshold = 0.999; },
     [](auto& c) { c.skip_backward.evidence_sigmas = 0; }, 1, 0.5},
    {"confidence_window", [](auto& c) { c.skip_backward.confidence_window = 4; }},
    {"predictor", [](auto& c) { c.skip_backward.predictor = "zero"; }},
    {"variants",
     [](auto& c) {
       c.skip_backward.variants = {{"momentum", 4}, {"linear", 2}};
     }},
    {"horizon", [](auto& c) { c.skip_backward.horizon = "model_based"; }},
    {"residual_store", [](auto& c) { c.skip_backward.residual_store = 0; },
     [](auto& c) { c.skip_backward.horizon = "model_based"; }, 60},
    {"decay", [](auto& c) { c.skip_backward.decay = 0.5; }},
    {"history_interval", [](auto& c) { c.skip_backward.history_interval = 2; },
     [](auto& c) { c.skip_backward.predictor = "linear"; }},
    {"slow_steps", [](auto& c) { c.skip_backward.slow_steps = 20; },
     [](auto& c) { c.skip_backward.predictor = "merged"; }},
    {"slow_share", [](auto& c) { c.skip_backward.slow_share = 0.2; },
     [](auto& c) { c.skip_backward.predictor = "two_timescale"; }},
    {"correction_interval", [](auto& c) { c.skip_backward.correction_interval = 2; }},
    {"probe_batches", [](auto& c) { c.skip_backward.probe_batches = 1; }},
    {"max_shrinks", [](auto& c) { c.skip_backward.max_shrinks = 0; }, kNothing, 60},
    {"trial_share", [](auto& c) { c.skip_backward.trial_share = 0.05; }},
    {"trial_steps", [](auto& c) { c.skip_backward.trial_steps = 5; }},
    {"evidence_sigmas", [](auto& c) { c.skip_backward.evidence_sigmas = 0; },
     [](auto& c) { c.skip_backward.direction_cost = 0; }},
    {"forward_cost", [](auto& c) { c.forward_cost = 0.9; }},
    {"aim_cost", [](auto& c) { c.skip_backward.direction_cost = 0; }},
    {"model_based_cost", [](auto& c) { c.skip_backward.model_based_cost = 1; },
     [](auto& c) { c.skip_backward.horizon = "model_based"; }},
    {"method", [](auto& c) { c.method = "asynchronous_optimizer"; }},
    {"prediction_error_limit",
     [](auto& c) { c.asynchronous_optimizer.prediction_error_limit = 0.1; }, kLate},
};
/// Fields that act on the exact state; speculation_test.cpp covers them.
bool acts_on_state(const std::string& field) {
  return field == "delay" || field == "device_side" || field == "exact_state" ||
         field == "worker_threads" || field == "steps" || field == "fragments" ||
         field == "exchange_bits" || field == "outer_learning_rate" ||
         field == "outer_momentum";  // over ranks: tests/trainer/local_sgd_test.cpp
}

TEST(PhaseConfig, EveryFieldTakesEffect) {
  std::set<std::string> tried;
  for (const Flip& flip : kFlips) {
    PhaseMachine::Setup setup = base_setup();
    flip.first(setup.phases);
    const std::string before = trace_of(setup, flip.direction_scale, flip.noise);
    flip.change(setup.phases);
    EXPECT_TRUE(trace_of(setup, flip.direction_scale, flip.noise) != before) << flip.field;
    tried.insert(flip.field);
  }
  const auto expect_tried = [&](const auto& field) {
    EXPECT_TRUE(tried.contains(field.name) || acts_on_state(field.name))
        << field.name << " has no test that it acts";
  };
  PhaseConfig config;
  PhaseConfig::visit_fields(config, [&]<class T>(const Field<T>& field) {
    if constexpr (FieldStruct<T>) {
      T::visit_fields(field.value, expect_tried);
    } else {
      expect_tried(field);
    }
  });
}

TEST(PhaseConfig, PresetsAreValidAndDiffer) {
  std::vector<std::string> problems;
  for (const PhaseConfig& config :
       {PhaseConfig::conservative(), PhaseConfig::balanced(), PhaseConfig::aggressive()}) {
    collect_range_problems(config, "phases", problems);
  }
  EXPECT_TRUE(problems.empty()) << problems.front();
  EXPECT_LT(PhaseConfig::conservative().max_predict_steps,
            PhaseConfig::aggressive().max_predict_steps);
}

TEST(PhaseConfig, ReportsEveryValueOutOfRange) {
  PhaseConfig config;
  config.skip_backward.confidence_threshold = 1;
  config.full_steps = 0;
  config.skip_backward.predictor = "rssm";
  std::vector<std::string> problems;
  collect_range_problems(config, "phases", problems);
  EXPECT_EQ(problems.size(), 3u);
}

}  // namespace
}  // namespace hybrid_trainer
