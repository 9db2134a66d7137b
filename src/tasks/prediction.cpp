#include "src/tasks/prediction.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

void require_width(std::span<const float> logits, const std::vector<ClassLabel>& labels) {
  if (logits.size() != labels.size())
    throw ShapeMismatch(concat("the model has ", logits.size(), " outputs, but model.labels has ",
                               labels.size(), " classes"));
}

}  // namespace

double decimal(float value) {
  std::array<char, 32> text{};
  const char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double number = 0;
  std::from_chars(text.data(), end, number);
  return number;
}

boost::json::array decimals(std::span<const float> values) {
  boost::json::array numbers;
  numbers.reserve(values.size());
  for (const float value : values) numbers.emplace_back(decimal(value));
  return numbers;
}

boost::json::object class_fields(std::span<const float> logits,
                                 const std::vector<ClassLabel>& classes) {
  require_width(logits, classes);
  const auto largest = std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - *largest));
  boost::json::object scores;
  for (std::size_t i = 0; i < logits.size(); ++i)
    scores[classes[i].name] =
        decimal(static_cast<float>(std::exp(static_cast<double>(logits[i] - *largest)) / sum));
  return {{"label", classes[static_cast<std::size_t>(largest - logits.begin())].name},
          {"score", decimal(static_cast<float>(1 / sum))},
          {"scores", std::move(scores)}};
}

boost::json::object label_fields(std::span<const float> logits,
                                 const std::vector<ClassLabel>& labels) {
  require_width(logits, labels);
  boost::json::array found;
  boost::json::object scores;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    scores[labels[i].name] = decimal(sigmoid(logits[i]));
    if (logits[i] > 0) found.emplace_back(labels[i].name);
  }
  return {{"labels", std::move(found)}, {"scores", std::move(scores)}};
}

}  // namespace hybrid_trainer
