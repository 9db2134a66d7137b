#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// How the routers of a step spread its tokens over their experts; one value for each layer with
/// experts, in the order of the layers. Over several ranks, of this rank's tokens.
struct ExpertLoads {
  /// Tokens of the busiest and of the idlest expert over the mean of all; 1 is even.
  std::vector<double> most, least;
  /// Of the router's probabilities, a mean over tokens, in nats; log of the experts is even.
  std::vector<double> entropy;
  /// Experts that no token has gone to for kDeadAfter steps.
  std::vector<std::int64_t> dead;
  /// The losses that were added to the training loss: 0 where they are off.
  double balance_loss = 0, z_loss = 0;

  static constexpr std::int64_t kDeadAfter = 100;
  bool empty() const { return most.empty(); }
  bool operator==(const ExpertLoads&) const = default;
};

/// Which share of the experts' choices Predict has changed, over the steps that tell (routing_flips).
struct RoutingFlips {
  std::int64_t steps = 0;
  double sum = 0, most = 0;
  void add(double share);
  double mean() const { return steps == 0 ? 0 : sum / static_cast<double>(steps); }
  /// "mean 12.3 %, at most 29.2 % of the choices, in 21 steps of Predict"; "" of no step.
  std::string text() const;
};

/// One object, as in a line of metrics.jsonl.
std::string json_text_of(const ExpertLoads& loads);
/// A table of the layers, for people.
std::string text_of(const ExpertLoads& loads);

}  // namespace hybrid_trainer
