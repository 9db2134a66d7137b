#pragma once

#include <boost/json/object.hpp>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "hybrid_trainer/models/network_config.h"

namespace hybrid_trainer {

/// Prediction of a model for a text, image or other example.
struct Prediction {
  std::vector<float> numbers{};  // embedding, logits or outputs; equally many for all examples
  boost::json::object fields{};  // for a line of JSON
};
using PredictionHandler = std::function<void(const Prediction&)>;

/// Returns the shortest decimal number that has the same f32 value.
double decimal(float value);
boost::json::array decimals(std::span<const float> values);

inline float sigmoid(float logit) { return 1 / (1 + std::exp(-logit)); }

/// Returns {"label": "cat", "score": 0.9, "scores": {"cat": 0.9, …}}: the softmax of the logits,
/// and the most probable class.
boost::json::object class_fields(std::span<const float> logits,
                                 const std::vector<ClassLabel>& classes);
/// Returns {"labels": ["news"], "scores": {"news": 0.9, …}}: the sigmoid of each logit, and the
/// labels with a probability above 0.5.
boost::json::object label_fields(std::span<const float> logits,
                                 const std::vector<ClassLabel>& labels);

}  // namespace hybrid_trainer
