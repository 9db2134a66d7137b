#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/phases/asynchronous_gradients_config.h"
#include "hybrid_trainer/phases/asynchronous_optimizer_config.h"
#include "hybrid_trainer/phases/local_sgd_config.h"
#include "hybrid_trainer/phases/skip_backward_config.h"

namespace hybrid_trainer {

/// What Predict may do: "skip_backward", "asynchronous_optimizer", "asynchronous_gradients" or
/// "local_sgd". Each has a group of this name in PhaseConfig, and a row in the table of methods.
const std::vector<std::string>& method_names();

/// How the phases follow each other, and which method Predict follows.
struct PhaseConfig {
  std::string method = "skip_backward";
  std::int64_t warmup_steps = 100;
  std::int64_t full_steps = 20;
  std::int64_t max_predict_steps = 15;
  std::int64_t correct_steps = 1;
  double forward_cost = 0.35;
  SkipBackwardConfig skip_backward{};
  AsynchronousOptimizerConfig asynchronous_optimizer{};
  AsynchronousGradientsConfig asynchronous_gradients{};
  LocalSgdConfig local_sgd{};

  bool skips_backward() const { return method == "skip_backward"; }
  bool delays_updates() const { return method == "asynchronous_optimizer"; }
  bool delays_gradients() const { return method == "asynchronous_gradients"; }
  bool trains_locally() const { return method == "local_sgd"; }
  /// Whether ranks go on in Predict before others have sent what they have.
  bool runs_ahead_of_ranks() const { return delays_gradients() || trains_locally(); }

  /// Steps by which the method's updates, gradients or exchanges arrive late; 0: none does.
  std::int64_t delay() const;
  /// How Predict goes, in words: " by momentum from confidence 0.6".
  std::string predict_text() const;

  /// Short jumps, checked often and on more batches.
  static PhaseConfig conservative();
  /// The defaults.
  static PhaseConfig balanced() { return {}; }
  /// Long jumps with micro-corrections, and a larger share of trials.
  static PhaseConfig aggressive();

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{
        "method", self.method,
        "Which expensive part of a step Predict avoids. skip_backward: the backward pass; weights "
        "move along a predicted direction, with forward passes only. asynchronous_optimizer: "
        "waiting for the update; masters and optimizer state are off the device and updated beside "
        "the computation, while the device predicts the pending updates. asynchronous_gradients: "
        "waiting for other ranks; each rank predicts from its own gradient what they will send. "
        "local_sgd: exchanging gradients; each rank trains by itself, and the ranks exchange "
        "weights. Each method has a group of its name.",
        Range{}, method_names()});
    visit(Field{"warmup_steps", self.warmup_steps, "Steps before any prediction.",
                Range::at_least(0)});
    visit(Field{"full_steps", self.full_steps,
                "Fewest Full steps between two predictions; there are always at least four.",
                Range::at_least(1)});
    visit(Field{"max_predict_steps", self.max_predict_steps,
                "Longest Predict phase in steps; 0 is plain training.", Range::at_least(0)});
    visit(Field{"correct_steps", self.correct_steps,
                "Length of Correct. Its first step decides, the others are updates.",
                Range::at_least(1)});
    visit(Field{"forward_cost", self.forward_cost,
                "Cost of a forward pass, as a share of a Full step.", Range{0, 1, true, false}});
    visit(Field{"skip_backward", self.skip_backward, "Settings of the method skip_backward."});
    visit(Field{"asynchronous_optimizer", self.asynchronous_optimizer,
                "Settings of the method asynchronous_optimizer."});
    visit(Field{"asynchronous_gradients", self.asynchronous_gradients,
                "Settings of the method asynchronous_gradients."});
    visit(Field{"local_sgd", self.local_sgd, "Settings of the method local_sgd."});
  }
};

}  // namespace hybrid_trainer
