#include "src/data/synthetic/synthetic_set.h"

#include <cmath>
#include <numbers>

#include "src/core/narrow.h"

namespace hybrid_trainer {

double RandomDraws::normal() {
  const double radius = std::sqrt(-2.0 * std::log((word() + 1.0) * 0x1p-32));
  return radius * std::cos(2.0 * std::numbers::pi * (word() * 0x1p-32));
}

void add_uniform_noise(std::span<float> values, float most, const RandomKey& key) {
  const float step = most * 0x1p-15f;
  for (std::size_t i = 0; i < values.size(); i += 8) {
    const auto words = philox(key, i / 8);
    for (std::size_t j = 0; j < 8 && i + j < values.size(); ++j) {
      const std::uint32_t half = words[j / 2] >> (j % 2 * 16) & 0xFFFFu;
      values[i + j] += step * static_cast<float>(narrow<std::int32_t>(half) - 0x8000);
    }
  }
}

std::int64_t noisy_label(std::int64_t label, std::int64_t labels, double noise,
                         RandomDraws& draws) {
  const bool wrong = draws.unit() < noise;
  const std::int64_t other = draws.below(labels - 1);
  return wrong ? (label + 1 + other) % labels : label;
}

double noisy_label_entropy(std::int64_t labels, double noise) {
  const auto term = [](double share) { return share > 0 ? -share * std::log(share) : 0.0; };
  return term(1 - noise) + term(noise) + noise * std::log(static_cast<double>(labels - 1));
}

Batch empty_examples(std::int64_t examples, const std::vector<ExampleTensor>& tensors,
                     const Stream& stream) {
  std::vector<NamedTensor> parts;
  for (const ExampleTensor& tensor : tensors) {
    Shape shape{examples};
    for (const std::int64_t size : tensor.sizes) shape.append(size);
    parts.push_back({tensor.name, Tensor::empty(shape, tensor.dtype, MemoryKind::kData, stream)});
  }
  return Batch(std::move(parts));
}

}  // namespace hybrid_trainer
