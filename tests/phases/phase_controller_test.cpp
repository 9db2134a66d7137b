#include "phases/method.h"

#include <gtest/gtest.h>

#include <string>

namespace hybrid_trainer {
namespace {

struct Row {
  const char* name;
  Phase now;
  PhaseSignals signals;
  Phase next;
};

PhaseSignals good(std::int64_t steps) {
  PhaseSignals signals;
  signals.steps_in_phase = steps;
  signals.may_predict = true;
  signals.confidence = 0.9;
  signals.min_confidence = 0.6;
  signals.planned_predict = 7;
  return signals;
}

template <class Change>
PhaseSignals good_but(std::int64_t steps, Change change) {
  PhaseSignals signals = good(steps);
  change(signals);
  return signals;
}

const Row kRows[] = {
    {"warmup goes on", Phase::kWarmup, good(99), Phase::kWarmup},
    {"warmup ends", Phase::kWarmup, good(100), Phase::kFull},
    {"full goes on", Phase::kFull, good(19), Phase::kFull},
    {"full ends", Phase::kFull, good(20), Phase::kPredict},
    {"gate closed", Phase::kFull, good_but(20, [](auto& s) { s.may_predict = false; }),
     Phase::kFull},
    {"unhealthy", Phase::kFull, good_but(20, [](auto& s) { s.healthy = false; }), Phase::kFull},
    {"unsure", Phase::kFull, good_but(20, [](auto& s) { s.confidence = 0.59; }), Phase::kFull},
    {"just sure", Phase::kFull, good_but(20, [](auto& s) { s.confidence = 0.6; }), Phase::kPredict},
    {"unsure but overdue", Phase::kFull,
     good_but(20,
              [](auto& s) {
                s.confidence = 0;
                s.trial_overdue = true;
              }),
     Phase::kPredict},
    {"predict goes on", Phase::kPredict, good(6), Phase::kPredict},
    {"predict ends as planned", Phase::kPredict, good(7), Phase::kCorrect},
    {"predict stopped", Phase::kPredict, good_but(1, [](auto& s) { s.stop_predict = true; }),
     Phase::kCorrect},
    {"no step left to decide in", Phase::kFull,
     good_but(20, [](auto& s) { s.remaining_steps = 1; }), Phase::kFull},
    {"one step to predict, one to decide", Phase::kFull,
     good_but(20, [](auto& s) { s.remaining_steps = 2; }), Phase::kPredict},
    {"the last step decides", Phase::kPredict, good_but(1, [](auto& s) { s.remaining_steps = 1; }),
     Phase::kCorrect},
    {"correct ends", Phase::kCorrect, good(1), Phase::kFull},
};

TEST(NextPhase, MatchesTransitionTable) {
  for (const Row& row : kRows) {
    const Phase next = next_phase(row.now, row.signals, PhaseConfig{});
    EXPECT_STREQ(name_of(next), name_of(row.next)) << row.name;
  }
}

TEST(NextPhase, NeverPredictsInPlainTraining) {
  PhaseConfig plain;
  plain.max_predict_steps = 0;
  EXPECT_EQ(next_phase(Phase::kFull, good(1000), plain), Phase::kFull);
}

TEST(NextPhase, StaysInCorrectForConfiguredSteps) {
  PhaseConfig config;
  config.correct_steps = 3;
  EXPECT_EQ(next_phase(Phase::kCorrect, good(2), config), Phase::kCorrect);
  EXPECT_EQ(next_phase(Phase::kCorrect, good(3), config), Phase::kFull);
}

TEST(NextPhase, IsConstantExpression) {
  static_assert(next_phase(Phase::kWarmup, PhaseSignals{.steps_in_phase = 100}, PhaseConfig{}) ==
                Phase::kFull);
}

}  // namespace
}  // namespace hybrid_trainer
