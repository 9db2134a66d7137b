#include "phases/method_refusals.h"
#include "phases/skip_backward/skip_backward.h"

namespace hybrid_trainer {

const std::vector<Refusal>& SkipBackwardMethod::refusals() {
  const std::string strategy = "predict_aware_memory.offload_strategy",
                    longest = "phases.max_predict_steps";
  static const std::vector<Refusal> rows{
      {.keys = {strategy},
       .kind = Kind::kIsNoneOf,
       .values = {"drop_and_reinitialize"},
       .why = "memory.optimizer_state leaves nothing on the device to drop",
       .when = {{"memory.optimizer_state", Kind::kIsNoneOf, {"device"}}},
       .wanted = "none"},
      {.keys = {strategy},
       .kind = Kind::kIsNoneOf,
       .values = {"drop_and_reinitialize"},
       .why = "optimizer.paged leaves nothing on the device to drop",
       .when = {{"optimizer.paged", Kind::kIsOneOf, {"true"}}},
       .wanted = "none"},
      {.keys = {"phases.skip_backward.arms[].steps"},
       .kind = Kind::kIsAtMost,
       .values = {longest},
       .why = "no prediction is longer",
       .when = {{longest, Kind::kIsMoreThan, {"0"}}}},
      {.keys = {"phases.skip_backward.predictor", "phases.skip_backward.arms[].predictor"},
       .kind = Kind::kIsNoneOf,
       .values = {"random"},
       .why = "distributed.zero lets a rank draw its own part alone",
       .when = {{"distributed.zero", Kind::kIsMoreThan, {"0"}},
                {"ranks", Kind::kIsMoreThan, {"0"}}},
       .wanted = "another one"},
      refusal_of_rounded_gradients(),
  };
  return rows;
}

}  // namespace hybrid_trainer
