#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Names that SkipBackwardConfig::predictor may hold: "momentum", "linear",
/// "two_timescale", "merged", "random", "zero".
const std::vector<std::string>& predictor_names();

/// Who chooses how far a prediction goes: "measured" or "dreamt".
const std::vector<std::string>& horizon_names();

/// What a prediction may be made with. JSON list `phases.skip_backward.arms`.
struct PredictionArm {
  std::string predictor = "momentum";
  std::int64_t steps = 4;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"predictor", self.predictor, "See phases.skip_backward.predictor.", Range{},
                predictor_names()});
    visit(Field{"steps", self.steps,
                "Length of its Predict phase, at most phases.max_predict_steps.",
                Range::at_least(1)});
  }
};

/// Skip-backward prediction: in Predict, weights move along a predicted direction, on forward passes
/// alone. Costs are in Full steps.
struct SkipBackwardConfig {
  double confidence_threshold = 0.60;
  std::int64_t confidence_window = 8;
  std::string predictor = "momentum";
  std::vector<PredictionArm> arms{};
  std::string horizon = "measured";
  std::int64_t residual_store = 32;
  double decay = 0.9;
  std::int64_t history_interval = 3;
  std::int64_t slow_steps = 50;
  double slow_share = 0.5;
  std::int64_t correction_interval = 0;
  std::int64_t probe_batches = 2;
  std::int64_t max_shrinks = 2;
  double trial_share = 0.005;
  std::int64_t trial_steps = 2;
  double evidence_sigmas = 2.0;
  double aim_cost = 0.3;
  double dream_cost = 32;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"confidence_threshold", self.confidence_threshold,
                "Least probability that the predicted direction lowers the loss. The first probe, "
                "and probes within half of trial_share, do not need it.",
                Range::fraction()});
    visit(Field{"confidence_window", self.confidence_window,
                "Gradients that the confidence is estimated from.", Range::at_least(2)});
    visit(
        Field{"predictor", self.predictor,
              "Source of the predicted weight change. momentum continues the optimizer's state; "
              "linear extrapolates recent changes; two_timescale adds a slow mean of changes; "
              "merged goes from one mean of the weights to the next; random and zero are controls.",
              Range{}, predictor_names()});
    visit(Field{
        "arms", self.arms,
        "Predictors and horizons to choose from, [{\"predictor\": \"merged\", \"steps\": 8}]. Each "
        "prediction takes the one whose predictions lowered the loss most for their cost, or that "
        "was tried too seldom. Empty: predictor is used, and its horizon grows from trial_steps."});
    visit(Field{"horizon", self.horizon,
                "Who chooses the number of predicted steps and their length. measured: the result "
                "of the last prediction. dreamt: small recurrent models that learn the run's loss "
                "as it goes. They choose at most the steps that the gate allows, and also give the "
                "confidence of a prediction.",
                Range{}, horizon_names()});
    visit(Field{
        "residual_store", self.residual_store,
        "With horizon dreamt: predictions whose real and simulated drop of the loss are kept. The "
        "three most similar ones lengthen or shorten the next prediction. 0 keeps none.",
        Range::between(0, 4096)});
    visit(Field{"decay", self.decay, "Length of a predicted step as a share of the one before.",
                Range{0, 1, true, false}});
    visit(Field{"history_interval", self.history_interval,
                "Updates between two samples of the weights, for linear, two_timescale and merged.",
                Range::at_least(1)});
    visit(Field{"slow_steps", self.slow_steps,
                "Updates that the slow predictors look back on: time constant of two_timescale's "
                "mean of weight changes, and length of each window whose mean merged takes.",
                Range::at_least(1)});
    visit(Field{"slow_share", self.slow_share,
                "Share of the slow mean in two_timescale's direction; the rest is the optimizer's "
                "own momentum.",
                Range::between(0, 1)});
    visit(Field{"correction_interval", self.correction_interval,
                "Predicted steps between two micro-corrections by a true gradient; 0 makes none.",
                Range::at_least(0)});
    visit(Field{"probe_batches", self.probe_batches,
                "Batches of Predict on which Correct compares the losses before and after.",
                Range::at_least(1)});
    visit(Field{"max_shrinks", self.max_shrinks,
                "Shorter predictions that Correct tries before it reverts.", Range::at_least(0)});
    visit(Field{"trial_share", self.trial_share,
                "Share of steps for probes of Predict while it is behind Full. The extra cost of "
                "probes stays within twice this share. 0 makes only the first one.",
                Range::between(0, 1)});
    visit(Field{"trial_steps", self.trial_steps,
                "Length of the first probe; accepted ones double it.", Range::at_least(1)});
    visit(Field{"evidence_sigmas", self.evidence_sigmas,
                "Standard errors by which Predict's measured gain must exceed zero to count.",
                Range::at_least(0)});
    visit(Field{"aim_cost", self.aim_cost,
                "Cost of computing a direction, in Full steps. The default is Muon's, whose "
                "direction needs an orthogonalization of its own.",
                Range::at_least(0)});
    visit(
        Field{"dream_cost", self.dream_cost,
              "Cost of an operation of the models behind horizon dreamt, in operations of a Full "
              "step. Their matrices are so small that each operation takes longer. They learn from "
              "an update only while their cost stays within a quarter of trial_share of the steps.",
              Range::at_least(0)});
  }
};

}  // namespace hybrid_trainer
