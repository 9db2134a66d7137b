#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// What stands in on the device for an exact update that has not arrived: "anticipated", "sketch",
/// "selective", "none", and with asynchronous gradients also "shared" and "momentum".
const std::vector<std::string>& device_side_names();
/// Where exact state may be: "host", "file".
const std::vector<std::string>& exact_state_names();

/// The asynchronous optimizer: masters and optimizer state are off the device in every phase. In
/// Predict they are updated beside the computation, and the device predicts the pending updates.
struct AsynchronousOptimizerConfig {
  std::int64_t delay = 1;
  std::string device_side = "anticipated";
  std::string exact_state = "host";
  std::int64_t worker_threads = 1;
  double prediction_error_limit = 1.0;

  /// Whether a bad prediction of an update means that something is wrong.
  bool forecasts_updates() const { return device_side == "anticipated" || device_side == "sketch"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"delay", self.delay, "Delay of an exact update in steps.", Range::between(1, 8)});
    visit(
        Field{"device_side", self.device_side,
              "How pending updates are predicted. anticipated: weights arrive with the momentum's "
              "part of the update, and the device adds the gradient's part. sketch: the device has "
              "the momentum in 8 bits and follows the optimizer's rule. selective, a control "
              "(ZenFlow's rule): the tenth of each matrix's columns with the largest gradients is "
              "updated at once on the device, the others by the mean of `delay` steps, `delay` "
              "steps late. none, a control: no prediction. shared and momentum are refused.",
              Range{}, device_side_names()});
    visit(Field{"exact_state", self.exact_state,
                "Where masters and optimizer state are: host, or file in memory.folder.", Range{},
                exact_state_names()});
    visit(
        Field{"worker_threads", self.worker_threads,
              "Threads of the worker that makes asynchronous updates, beside those of the device. "
              "Another number changes the last bits of Muon's exact weights and AdamW's forecasts.",
              Range::at_least(1)});
    visit(Field{"prediction_error_limit", self.prediction_error_limit,
                "Error of predicted updates, as a share of the exact ones' size, above which "
                "Predict ends early; 0 never ends it.",
                Range::at_least(0)});
  }
};

}  // namespace hybrid_trainer
