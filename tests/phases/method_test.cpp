#include "phases/method.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_parts.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

/// Trains in Predict as in Full, and reports it.
class PatientMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals() {
    static const std::vector<Refusal> rows{{{"memory.weights"}, {"device"}, "it is patient"}};
    return rows;
  }
  static std::string text(const PhaseConfig&) { return " patiently"; }
  void enter_predict(PhaseOutcome&) override { parts_.enter_model(Phase::kFull); }
  void predict(const Batch& batch, PhaseOutcome& outcome) override {
    train(batch, outcome);
    add_event(outcome, "patient");
    ++steps_;
  }
  void enter_correct(PhaseOutcome&) override { parts_.enter_model(Phase::kCorrect); }
  void save(State& state) const override { state.integers["phases.patient.steps"] = steps_; }
  void load(const State& state) override { steps_ = state.integer("phases.patient.steps"); }

 private:
  std::int64_t steps_ = 0;
};

std::vector<MethodRow> with_one_more() {
  std::vector<MethodRow> rows = methods();
  rows.push_back({"patient", PatientMethod::refusals, PatientMethod::text,
                  [](PhaseParts& parts) -> std::unique_ptr<Method> {
                    return std::make_unique<PatientMethod>(parts);
                  }});
  return rows;
}

PhaseMachine::Setup patient_setup(const std::vector<MethodRow>& rows) {
  PhaseMachine::Setup setup;
  setup.phases.method = "patient";
  setup.phases.warmup_steps = 2;
  setup.phases.full_steps = 4;
  setup.phases.max_predict_steps = 3;
  setup.methods = &rows;
  return setup;
}

TEST(Method, TableRowAddsMethod) {
  const std::vector<MethodRow> rows = with_one_more();
  QuadraticBowl::Options options;
  BowlRun run(options, patient_setup(rows), 0.02);
  const std::vector<PhaseOutcome> outcomes = run.run(20);
  std::string phases;
  for (const PhaseOutcome& outcome : outcomes) {
    phases += name_of(outcome.phase)[0];
    EXPECT_EQ(outcome.updates, 1);
    EXPECT_EQ(outcome.event.find("patient") != std::string::npos, outcome.phase == Phase::kPredict);
  }
  EXPECT_EQ(phases, "wwffffpppcffffpppcff");
  EXPECT_LT(outcomes.back().loss, outcomes.front().loss);
}

TEST(Method, UnknownNameSuggestsNearest) {
  QuadraticBowl::Options options;
  PhaseMachine::Setup setup;
  setup.phases.method = "skip_backwards";
  try {
    const BowlRun run(options, setup, 0);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("phases.method: got \"skip_backwards\""),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("skip_backward"), std::string::npos);
  }
}

TEST(Methods, EachHasConfigGroupAndRefusals) {
  std::vector<std::string> groups;
  PhaseConfig config;
  PhaseConfig::visit_fields(config, [&]<class T>(const Field<T>& field) {
    if constexpr (FieldStruct<T>) groups.emplace_back(field.name);
  });
  EXPECT_EQ(groups, method_names());
  for (const MethodRow& row : methods()) {
    EXPECT_FALSE(row.refusals().empty()) << row.name;
    EXPECT_FALSE(row.text(config).empty()) << row.name;
    for (const Refusal& refusal : row.refusals()) {
      EXPECT_FALSE(refusal.why.empty()) << row.name;
      EXPECT_TRUE(!refusal.wanted.empty() || !refusal.values.empty()) << row.name;
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer
