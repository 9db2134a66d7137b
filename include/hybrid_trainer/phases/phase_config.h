#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Names that PhaseConfig::predictor may hold: "momentum", "linear",
/// "two_timescale", "merged", "random", "zero".
const std::vector<std::string>& predictor_names();

/// Who chooses how far a prediction goes: "measured" or "dreamt".
const std::vector<std::string>& horizon_names();

/// What Predict goes on without: "backward", "optimizer_state" or "other_ranks".
const std::vector<std::string>& ingredient_names();
/// What stands in on the device for an exact update that has not arrived: "anticipated", "sketch",
/// "selective", "none", and over ranks also "shared" and "momentum".
const std::vector<std::string>& device_side_names();
/// Where exact state may be: "host", "file".
const std::vector<std::string>& exact_state_names();

/// What a prediction may be made with. JSON list `phases.arms`.
struct PredictionArm {
  std::string predictor = "momentum";
  std::int64_t steps = 4;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"predictor", self.predictor, "See phases.predictor.", Range{}, predictor_names()});
    visit(Field{"steps", self.steps, "Length of its Predict phase, at most max_predict_steps.",
                Range::at_least(1)});
  }
};

/// How the phases follow each other and what Predict may do. Costs are in Full steps.
struct PhaseConfig {
  std::int64_t warmup_steps = 100;
  std::int64_t full_steps = 20;
  std::int64_t max_predict_steps = 15;
  std::int64_t correct_steps = 1;
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
  double forward_cost = 0.35;
  double aim_cost = 0.3;
  double dream_cost = 32;
  std::string ingredient = "backward";
  std::int64_t lag = 1;
  std::string device_side = "anticipated";
  std::string exact_state = "host";
  std::int64_t worker_threads = 1;
  double prediction_error_limit = 1.0;
  std::int64_t local_steps = 0;
  std::int64_t local_fragments = 1;
  std::int64_t exchange_bits = 32;
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;

  /// Whether a bad prediction of an update means that something is wrong.
  bool forecasts_updates() const { return device_side == "anticipated" || device_side == "sketch"; }
  bool predicts_backward() const { return ingredient == "backward"; }
  bool lacks_optimizer_state() const { return ingredient == "optimizer_state"; }
  bool lacks_other_ranks() const { return ingredient == "other_ranks"; }
  bool takes_local_steps() const { return lacks_other_ranks() && local_steps > 0; }

  /// Short jumps, checked often and on more batches.
  static PhaseConfig conservative();
  /// The defaults.
  static PhaseConfig balanced() { return {}; }
  /// Long jumps with micro-corrections, and a larger share of trials.
  static PhaseConfig aggressive();

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"warmup_steps", self.warmup_steps, "Steps before any prediction.",
                Range::at_least(0)});
    visit(Field{"full_steps", self.full_steps,
                "Fewest Full steps between two predictions; there are always at least four.",
                Range::at_least(1)});
    visit(Field{"max_predict_steps", self.max_predict_steps,
                "Longest Predict phase in steps; 0 is plain training.", Range::at_least(0)});
    visit(Field{"correct_steps", self.correct_steps,
                "Length of Correct; the first step decides, the others are updates.",
                Range::at_least(1)});
    visit(Field{
        "confidence_threshold", self.confidence_threshold,
        "Least probability that the predicted direction lowers the loss; the first trial, and "
        "trials within half of trial_share, go ahead without.",
        Range::fraction()});
    visit(Field{"confidence_window", self.confidence_window,
                "Gradients that the confidence is estimated from.", Range::at_least(2)});
    visit(Field{"predictor", self.predictor, "Where the predicted weight change comes from.",
                Range{}, predictor_names()});
    visit(Field{"arms", self.arms,
                "Predictors and horizons, [{\"predictor\": \"merged\", \"steps\": 8}], among "
                "which each prediction takes the one whose jumps have lowered the loss most for "
                "their cost, or that was tried too seldom; all of them keep what they need. "
                "Without any, predictor is taken, and its horizon grows from trial_steps."});
    visit(Field{"horizon", self.horizon,
                "Who chooses the steps of a prediction and their length. measured: what came of "
                "the one before. dreamt: recurrent models that learn the run's loss as it goes; "
                "they choose at most the steps that are granted, and also give the confidence of a "
                "prediction, held against what came of those before.",
                Range{}, horizon_names()});
    visit(Field{"residual_store", self.residual_store,
                "Where the horizon is dreamt: predictions whose real drop of the loss is kept "
                "beside the dreamt one; what came of the three that are most like the next one "
                "lengthens or shortens its steps. 0 keeps none.",
                Range::between(0, 4096)});
    visit(Field{"decay", self.decay, "Length of a predicted step as a share of the one before.",
                Range{0, 1, true, false}});
    visit(Field{"history_interval", self.history_interval,
                "Updates between two looks at the weights: of linear at the changes that it keeps, "
                "of two_timescale and merged at what goes into their means.",
                Range::at_least(1)});
    visit(Field{"slow_steps", self.slow_steps,
                "Updates that the slow predictors look back on: the time constant of "
                "two_timescale's mean of weight changes, and the length of each stretch that "
                "merged takes the mean of.",
                Range::at_least(1)});
    visit(Field{"slow_share", self.slow_share,
                "Share of the slow mean in two_timescale's direction; the rest is the optimizer's "
                "own momentum.",
                Range::between(0, 1)});
    visit(Field{"correction_interval", self.correction_interval,
                "Predicted steps between two micro-corrections by a true gradient; 0 is none.",
                Range::at_least(0)});
    visit(Field{"probe_batches", self.probe_batches,
                "Batches of Predict on which Correct compares the losses before and after.",
                Range::at_least(1)});
    visit(Field{"max_shrinks", self.max_shrinks,
                "Shorter jumps that Correct tries before it reverts.", Range::at_least(0)});
    visit(
        Field{"trial_share", self.trial_share,
              "Share of steps kept for trials of Predict while it is behind Full, and half of the "
              "share of its cost that a run may be charged for them; with 0 only the first one "
              "is made.",
              Range::between(0, 1)});
    visit(Field{"trial_steps", self.trial_steps,
                "Length of the first trial; accepted ones double it.", Range::at_least(1)});
    visit(Field{"evidence_sigmas", self.evidence_sigmas,
                "Standard errors by which Predict's measured gain must be sure to count.",
                Range::at_least(0)});
    visit(Field{"forward_cost", self.forward_cost,
                "What a forward pass is charged, as a share of a Full step.",
                Range{0, 1, true, false}});
    visit(Field{"aim_cost", self.aim_cost,
                "What predicting a direction is charged, in Full steps; the default is Muon's, "
                "whose direction takes an orthogonalisation of its own.",
                Range::at_least(0)});
    visit(
        Field{"dream_cost", self.dream_cost,
              "What an operation of the models that dream horizons is charged, in operations of a "
              "Full step: their matrices are so small that each takes longer. They learn from an "
              "update only where all that they were charged stays within a quarter of "
              "trial_share of the steps.",
              Range::at_least(0)});
    visit(Field{"ingredient", self.ingredient,
                "What Predict goes on without. backward: weights move along a predicted direction, "
                "on forward passes alone. optimizer_state: masters and optimizer state are where "
                "exact_state says in every phase; in Predict, as long as max_predict_steps, they "
                "are updated beside the computation, `lag` steps late, and the device predicts the "
                "updates that are under way. other_ranks: each rank goes on with its own gradient "
                "and a prediction of what the others will send; their sum, and the exact update "
                "by it, come `lag` steps late.",
                Range{}, ingredient_names()});
    visit(Field{"lag", self.lag,
                "Steps by which an exact update arrives late, where the ingredient is "
                "optimizer_state or other_ranks.",
                Range::between(1, 8)});
    visit(
        Field{"device_side", self.device_side,
              "What stands in for an update under way. anticipated: weights come with the part "
              "that the momentum will make of it, and the device adds the gradient's part. "
              "sketch: the device has the momentum in 8 bits and follows the optimizer's rule. "
              "selective, a control (ZenFlow's rule): the tenth of each matrix's columns with "
              "the largest gradients is updated at once on the device, the others by the mean "
              "of `lag` steps, `lag` steps late. none: nothing, the control. Where the "
              "ingredient is other_ranks, anticipated is the momentum's part with this rank's own "
              "gradient as that of all; shared, a control: its own for its share and the "
              "momentum for each other's; momentum, a control: the momentum as that of all.",
              Range{}, device_side_names()});
    visit(Field{"exact_state", self.exact_state,
                "Where masters and optimizer state are, where the ingredient is optimizer_state: "
                "host, or file in memory.folder.",
                Range{}, exact_state_names()});
    visit(
        Field{"worker_threads", self.worker_threads,
              "Threads of the worker that makes late updates, beside those of the device. With "
              "another number, Muon's exact weights and AdamW's forecasts have other last bits, as "
              "products and sums of columns are cut for the threads.",
              Range::at_least(1)});
    visit(
        Field{"prediction_error_limit", self.prediction_error_limit,
              "Size of the error of predicted updates, as a share of the exact ones', above which "
              "Predict ends early; 0 never does.",
              Range::at_least(0)});
    visit(Field{"local_steps", self.local_steps,
                "Where the ingredient is other_ranks: steps that each rank makes by itself, with "
                "updates of its own, between two exchanges of how far they came, each of which "
                "arrives `lag` steps after it began. 0: the gradient of each step is sent.",
                Range::between(0, 100000)});
    visit(Field{"local_fragments", self.local_fragments,
                "Equal parts of the weights, each of which is exchanged by itself, every "
                "local_steps at steps of its own, so that the link carries one of them at a time.",
                Range::between(1, 100000)});
    visit(Field{"exchange_bits", self.exchange_bits,
                "What an exchange sends of each weight's movement: 32 bits; or 8 or 4, in blocks "
                "with a scale each, where the next exchange makes up for what rounding changed.",
                Range::between(4, 32)});
    visit(Field{"outer_learning_rate", self.outer_learning_rate,
                "Share of the ranks' mean movement that an exchange moves the common weights by.",
                Range::between(0, 2)});
    visit(Field{"outer_momentum", self.outer_momentum,
                "Nesterov momentum of these movements, from exchange to exchange.",
                Range::fraction()});
  }
};

}  // namespace hybrid_trainer
