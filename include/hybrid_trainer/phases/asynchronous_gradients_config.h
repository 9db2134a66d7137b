#pragma once

#include <cstdint>
#include <string>

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/phases/asynchronous_optimizer_config.h"

namespace hybrid_trainer {

/// Asynchronous gradients: in Predict, each rank goes on with its own gradient and a prediction of
/// what the others will send.
struct AsynchronousGradientsConfig {
  std::int64_t delay = 1;
  std::string device_side = "anticipated";
  double prediction_error_limit = 1.0;

  /// Whether a bad prediction of an update means that something is wrong.
  bool forecasts_updates() const { return device_side == "anticipated"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"delay", self.delay,
                "Delay in steps of the ranks' summed gradient and the exact update by it.",
                Range::between(1, 8)});
    visit(Field{"device_side", self.device_side,
                "How pending updates are predicted. anticipated: by the momentum, with this rank's "
                "own gradient for that of all ranks. shared, a control: the own gradient for its "
                "share and the momentum for the rest. momentum, a control: the momentum alone. "
                "none, a control: no prediction. sketch and selective are refused.",
                Range{}, device_side_names()});
    visit(Field{"prediction_error_limit", self.prediction_error_limit,
                "Error of predicted updates, as a share of the exact ones' size, above which "
                "Predict ends early; 0 never ends it.",
                Range::at_least(0)});
  }
};

}  // namespace hybrid_trainer
