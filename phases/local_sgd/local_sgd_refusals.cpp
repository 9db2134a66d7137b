#include "phases/local_sgd/local_sgd.h"
#include "phases/method_refusals.h"

namespace hybrid_trainer {

const std::vector<Refusal>& LocalSgdMethod::refusals() {
  static const std::vector<Refusal> rows = [] {
    std::vector<Refusal> all = refusals_ahead_of_ranks();
    const std::string steps = "phases.local_sgd.steps", longest = "phases.max_predict_steps";
    const std::vector<Refusal> own{
        {{"distributed.zero"}, Kind::kIsOneOf, {"0"}, "each rank has all of the state"},
        {{steps},
         Kind::kIsMoreThan,
         {"phases.local_sgd.delay"},
         "an exchange has to arrive before the next one begins"},
        {.keys = {steps},
         .kind = Kind::kIsLessThan,
         .values = {longest},
         .why = "Predict would end before the first exchange",
         .when = {{longest, Kind::kIsMoreThan, {"0"}}}},
        {{"phases.local_sgd.fragments"},
         Kind::kIsAtMost,
         {steps},
         "each fragment has a step of its own to begin at"},
        {{"phases.local_sgd.exchange_bits"},
         Kind::kIsOneOf,
         {"32", "8", "4"},
         "an exchange has no other form"},
    };
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }();
  return rows;
}

}  // namespace hybrid_trainer
