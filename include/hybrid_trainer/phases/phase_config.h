#pragma once

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Accepted predictors: "momentum", "linear", "two_timescale", "merged", "random", "zero".
const std::vector<std::string>& predictor_names();

/// Predictor and length of a prediction. JSON list `phases.skip_backward.variants`.
struct PredictionVariant {
  std::string predictor = "momentum";
  std::int64_t steps = 4;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"predictor", self.predictor, "See phases.skip_backward.predictor.", Range{},
                predictor_names()});
    visit(Field{"steps", self.steps,
                "Length of the variant's Predict phase in steps, at most phases.max_predict_steps.",
                Range::at_least(1)});
  }
};

/// Settings of skip-backward prediction: forward-only steps along a predicted direction.
struct SkipBackwardConfig {
  double confidence_threshold = 0.60;
  std::string predictor = "momentum";
  std::vector<PredictionVariant> variants{};
  std::string horizon = "measured";
  std::int64_t slow_steps = 50;
  std::int64_t correction_interval = 0;
  double trial_share = 0.005;
  std::int64_t trial_steps = 2;

  // Constants:
  std::int64_t confidence_window = 8;  // gradients used to estimate the confidence
  double decay = 0.9;                  // length of a predicted step, relative to the previous step
  std::int64_t history_interval = 3;   // updates between two weight samples of a predictor
  double slow_share = 0.5;             // weight of the slow mean in the direction of two_timescale
  std::int64_t probe_batches = 2;      // batches on which Correct compares losses
  std::int64_t max_shrinks = 2;        // shorter predictions tried before a revert
  double evidence_sigmas = 2.0;        // number of standard errors by which a gain must exceed zero
  double direction_cost = 0.3;         // cost of computing a direction with Muon
  /// Cost of a FLOP of a small model, relative to a FLOP of a Full step.
  double model_based_cost = 32;
  std::int64_t residual_store = 32;  // number of model-based predictions whose errors are stored

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(
        Field{"confidence_threshold", self.confidence_threshold,
              "Minimum probability that the predicted direction lowers the loss, for a prediction "
              "to start. The first probe ignores it, and so do probes while they make up at most "
              "half of trial_share.",
              Range::fraction()});
    visit(Field{"predictor", self.predictor,
                "Predictor of the weight change. momentum: the optimizer's update with zero "
                "gradient; linear: extrapolates recent weights; two_timescale: momentum plus a "
                "slow mean of weight changes; merged: the difference of the mean weights of two "
                "consecutive windows. random and zero are controls.",
                Range{}, predictor_names()}
              .needs("phases.skip_backward.variants", {"[]"},
                     "phases.skip_backward.variants sets the predictors"));
    visit(Field{"variants", self.variants,
                "Variants of predictor and horizon, such as [{\"predictor\": \"merged\", "
                "\"steps\": 8}]. Each prediction uses the variant that has lowered the loss most "
                "for its cost, or a variant that was tried too rarely. Empty uses `predictor`, "
                "with a horizon that grows from trial_steps."});
    visit(Field{"horizon",
                self.horizon,
                "Method that sets the number of predicted steps and their length. measured: from "
                "the result of the last prediction. model_based: by small recurrent models, which "
                "learn the run's loss during training. They choose at most the number of steps "
                "that the gate allows, and also estimate the confidence.",
                Range{},
                {"measured", "model_based"}});
    visit(Field{"slow_steps", self.slow_steps,
                "Number of past updates that slow predictors use: the time constant of "
                "two_timescale's mean of weight changes, and the length of each window of merged.",
                Range::at_least(1)}
              .needs_any(KeyNeed::of(
                  {"phases.skip_backward.predictor", "phases.skip_backward.variants[].predictor"},
                  {"two_timescale", "merged"},
                  "it applies only to the predictors two_timescale and merged")));
    visit(Field{"correction_interval", self.correction_interval,
                "Number of predicted steps between two micro-corrections, which are updates by a "
                "computed gradient; 0: none.",
                Range::at_least(0)});
    visit(Field{"trial_share", self.trial_share,
                "Share of steps that are used for probes while Predict is worse than Full. The "
                "extra cost of probes is at most twice this share. 0 makes only the first probe.",
                Range::between(0, 1)});
    visit(Field{"trial_steps", self.trial_steps,
                "Length of the first probe in steps; each accepted probe doubles it.",
                Range::at_least(1)});
    visit(constant("confidence_window", self.confidence_window, Range::at_least(2)));
    visit(constant("decay", self.decay, Range{0, 1, true, false}));
    visit(constant("history_interval", self.history_interval, Range::at_least(1)));
    visit(constant("slow_share", self.slow_share, Range::between(0, 1)));
    visit(constant("probe_batches", self.probe_batches, Range::at_least(1)));
    visit(constant("max_shrinks", self.max_shrinks, Range::at_least(0)));
    visit(constant("evidence_sigmas", self.evidence_sigmas, Range::at_least(0)));
    visit(constant("aim_cost", self.direction_cost, Range::at_least(0)));
    visit(constant("model_based_cost", self.model_based_cost, Range::at_least(0)));
    visit(constant("residual_store", self.residual_store, Range::between(0, 4096)));
  }
};

/// Accepted predictors of pending exact updates on the device: "anticipated", "sketch",
/// "selective", "none"; for asynchronous gradients also "shared", "momentum".
const std::vector<std::string>& device_side_names();
/// Accepted locations of the exact state: "host", "file".
const std::vector<std::string>& exact_state_names();

/// Settings of the asynchronous optimizer: FP32 masters and state are offloaded; in Predict,
/// updates overlap with the computation, and the device predicts them.
struct AsynchronousOptimizerConfig {
  std::int64_t delay = 1;
  std::string device_side = "anticipated";
  std::string exact_state = "host";
  double prediction_error_limit = 1.0;
  /// Constant: number of threads that compute updates. Other numbers change the last bits of Muon's
  /// exact weights and of AdamW's forecasts.
  std::int64_t worker_threads = 1;

  /// Returns whether updates are predicted, so that a large prediction error indicates a problem.
  bool forecasts_updates() const { return device_side == "anticipated" || device_side == "sketch"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"delay", self.delay, "Delay of an exact update, in steps.", Range::between(1, 8)}
              .unless("phases.max_predict_steps", {"0"}));
    visit(
        Field{"device_side", self.device_side,
              "Prediction of pending updates. anticipated: the forecast from the host contains the "
              "momentum's part of the update, and the device adds the gradient's part. sketch: the "
              "device computes the optimizer's update with a momentum in 8 bits. Controls: "
              "selective (ZenFlow's rule) updates the tenth of each matrix's columns with the "
              "largest gradients immediately, and the others by the mean gradient of `delay` "
              "steps, `delay` steps late; none does not predict. shared and momentum are refused.",
              Range{}, device_side_names()}
            .unless("phases.max_predict_steps", {"0"}));
    visit(Field{"exact_state", self.exact_state,
                "Location of master weights and optimizer state: host, or file (in memory.folder).",
                Range{}, exact_state_names()}
              .on_resume(OnResume::kMayChange));
    visit(Field{"prediction_error_limit", self.prediction_error_limit,
                "Error of predicted updates, relative to the size of the exact ones, above which "
                "Predict ends early; 0 never ends it.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange)
              .unless("phases.max_predict_steps", {"0"}));
    visit(constant("worker_threads", self.worker_threads, Range::at_least(1)));
  }
};

/// Settings of asynchronous gradients: in Predict, each rank predicts other ranks' gradients.
struct AsynchronousGradientsConfig {
  std::int64_t delay = 1;
  std::string device_side = "anticipated";
  double prediction_error_limit = 1.0;

  /// Returns whether updates are predicted, so that a large prediction error indicates a problem.
  bool forecasts_updates() const { return device_side == "anticipated"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"delay", self.delay,
                "Delay, in steps, of the gradient summed over ranks, and so of the exact update.",
                Range::between(1, 8)});
    visit(Field{
        "device_side", self.device_side,
        "Prediction of pending updates. anticipated: from the momentum and this rank's gradient, "
        "as an estimate of the gradient of all ranks. Controls: shared uses this rank's gradient "
        "only for its share of the batch, and the momentum for the share of other ranks; momentum "
        "uses only the momentum; none does not predict. sketch and selective are refused.",
        Range{}, device_side_names()});
    visit(Field{"prediction_error_limit", self.prediction_error_limit,
                "Error of predicted updates, relative to the size of the exact ones, above which "
                "Predict ends early; 0 never ends it.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayChange));
  }
};

/// Settings of local SGD: in Predict, ranks train independently and exchange weight deltas.
struct LocalSgdConfig {
  std::int64_t steps = 0;
  std::int64_t delay = 1;
  std::int64_t fragments = 1;
  std::int64_t exchange_bits = 32;
  double outer_momentum = 0.9;
  double outer_learning_rate = 0.7;  // factor of the mean weight delta

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"steps", self.steps,
                "Number of steps that each rank trains independently between two exchanges of "
                "weights. Must be set: 0 is refused.",
                Range::between(0, 100000)});
    visit(Field{"delay", self.delay, "Steps between the start of an exchange and its arrival.",
                Range::between(1, 8)});
    visit(Field{"fragments", self.fragments,
                "Number of equal fragments of the weights. Each fragment is exchanged every "
                "`steps` steps. Fragments are exchanged at different steps, so that the link "
                "carries one fragment at a time.",
                Range::between(1, 100000)});
    visit(Field{"exchange_bits", self.exchange_bits,
                "Bits of a weight delta in an exchange: 32, 8 or 4. 8 and 4 use blocks with one "
                "scale each, and the next exchange compensates for the rounding error.",
                Range::between(4, 32)});
    visit(Field{"outer_momentum", self.outer_momentum,
                "Nesterov momentum with which each exchange applies the ranks' mean weight delta.",
                Range::fraction()});
    visit(constant("outer_learning_rate", self.outer_learning_rate, Range::between(0, 2)));
  }
};

/// Properties of a method that affect other parts of a run.
struct MethodTraits {
  /// Predict has only forward passes, and Correct decides whether to keep the change.
  bool skips_backward = false;
  /// FP32 masters and state are offloaded, and updates overlap with the computation.
  bool delays_updates = false;
  bool runs_ahead_of_ranks = false;  // steps do not wait for other ranks
  std::int64_t delay = 0;
  /// Number of predicted steps after which memory no longer grows, except for stored batches.
  std::int64_t steps_to_fill_memory = 0;
};

/// Methods of Predict: "skip_backward", "asynchronous_optimizer", "asynchronous_gradients" and
/// "local_sgd". Each is also the name of a group of PhaseConfig and of a row in the method table.
const std::vector<std::string>& method_names();

/// Sequence of the phases, and the method of Predict. JSON group `phases`.
struct PhaseConfig {
  std::string method = "skip_backward";
  std::int64_t warmup_steps = 100;
  std::int64_t full_steps = 20;
  std::int64_t max_predict_steps = 15;
  SkipBackwardConfig skip_backward{};
  AsynchronousOptimizerConfig asynchronous_optimizer{};
  AsynchronousGradientsConfig asynchronous_gradients{};
  LocalSgdConfig local_sgd{};

  // Constants:
  /// The first step decides on the prediction, the others are updates.
  std::int64_t correct_steps = 1;
  double forward_cost = 0.35;  // cost of a forward pass, relative to a Full step

  /// Returns the properties of `method`, or the defaults if the method is unknown.
  MethodTraits traits() const;
  /// Returns a description of Predict for messages, such as " by momentum from confidence 0.6".
  std::string predict_text() const;

  /// Returns settings with short predictions and frequent checks on more batches.
  static PhaseConfig conservative();
  static PhaseConfig balanced() { return {}; }
  /// Returns settings with long predictions, micro-corrections and a larger share of probes.
  static PhaseConfig aggressive();

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"method", self.method,
                "Expensive part of a step that Predict avoids. skip_backward: the backward pass; "
                "weights move along a predicted direction. asynchronous_optimizer: waiting for the "
                "update; it overlaps with the computation, off the device, and the device predicts "
                "pending updates. asynchronous_gradients: waiting for other ranks; each rank "
                "predicts their gradients. local_sgd: exchanging gradients; ranks train "
                "independently and exchange weights. Each method has a group of the same name.",
                Range{}, method_names()});
    visit(Field{"warmup_steps", self.warmup_steps, "Steps before any prediction.",
                Range::at_least(0)});
    visit(Field{
        "full_steps", self.full_steps,
        "Minimum number of Full steps between two predictions; there are always at least four.",
        Range::at_least(1)}
              .unless("phases.max_predict_steps", {"0"}));
    visit(Field{"max_predict_steps", self.max_predict_steps,
                "Maximum length of a Predict phase in steps; 0 is plain training.",
                Range::at_least(0)}
              .on_resume(OnResume::kMayBecome0)
              .essential(Question::kSpeed));
    visit(Field{"skip_backward", self.skip_backward, "Settings of the method skip_backward."}
              .needs("phases.method", {"skip_backward"})
              .unless("phases.max_predict_steps", {"0"}));
    visit(Field{"asynchronous_optimizer", self.asynchronous_optimizer,
                "Settings of the method asynchronous_optimizer."}
              .needs("phases.method", {"asynchronous_optimizer"}));
    visit(Field{"asynchronous_gradients", self.asynchronous_gradients,
                "Settings of the method asynchronous_gradients."}
              .needs("phases.method", {"asynchronous_gradients"})
              .unless("phases.max_predict_steps", {"0"}));
    visit(Field{"local_sgd", self.local_sgd, "Settings of the method local_sgd."}
              .needs("phases.method", {"local_sgd"})
              .unless("phases.max_predict_steps", {"0"}));
    visit(constant("correct_steps", self.correct_steps, Range::at_least(1)));
    visit(constant("forward_cost", self.forward_cost, Range{0, 1, true, false}));
  }
};

/// Settings of the learning-rate finder. In Warmup, it probes the loss along the last update, and
/// raises the learning rate if it is far too low. JSON group `learning_rate_finder`.
struct LearningRateFinderConfig {
  std::string mode = "off";

  // Constants:
  std::int64_t interval = 12;   // updates between probes; a probe moves along their sum
  double largest_factor = 4.0;  // maximum factor of the learning rate in one probe
  double batch_share = 0.25;    // share of the next batch on which a probe computes losses
  std::int64_t refusals = 2;    // probes without a lower loss after which probing ends

  bool is_on() const { return mode != "off"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"mode",
                self.mode,
                "off or warmup. warmup: in Warmup, after the schedule has reached its highest "
                "rate, probe the loss further along the last update, and raise the rate for the "
                "rest of the run if the loss is lower there. It corrects a constant rate that is "
                "far too low, but does not improve a good rate. With a decaying schedule, the "
                "found rate may be 2.6 to 4 times too low.",
                Range{},
                {"off", "warmup"}});
    visit(constant("interval", self.interval, Range::at_least(1)));
    visit(constant("largest_factor", self.largest_factor, Range::above(1)));
    visit(constant("batch_share", self.batch_share, Range{0, 1, true, false}));
    visit(constant("refusals", self.refusals, Range::at_least(1)));
  }
};

}  // namespace hybrid_trainer
