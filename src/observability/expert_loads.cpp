#include "hybrid_trainer/observability/expert_loads.h"

#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {
namespace {

std::string right(const std::string& text, std::size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

}  // namespace

void RoutingFlips::add(double share) {
  ++steps;
  sum += share;
  most = std::max(most, share);
}

std::string RoutingFlips::text() const {
  if (steps == 0) return "";
  return concat("mean ", units::fixed(100 * mean(), 1), " %, at most ", units::fixed(100 * most, 1),
                " % of the choices, in ", steps, " steps of Predict");
}

std::string json_text_of(const ExpertLoads& loads) {
  return boost::json::serialize(json_of(loads));
}

std::string text_of(const ExpertLoads& loads) {
  std::string text = "layer  busiest  idlest  entropy  dead\n";
  for (std::size_t i = 0; i < loads.most.size(); ++i) {
    text += right(concat(i), 5) + right(units::fixed(loads.most[i], 2), 9) +
            right(units::fixed(loads.least[i], 2), 8) +
            right(units::fixed(loads.entropy[i], 3), 9) + right(concat(loads.dead[i]), 6) + "\n";
  }
  return text +
         "busiest, idlest: tokens of that expert over the mean of all; entropy: of the "
         "router, in nats;\ndead: experts without a token for " +
         concat(ExpertLoads::kDeadAfter, " steps; layers: those with experts\n");
}

}  // namespace hybrid_trainer
