#include "hybrid_trainer/models/decoder_spec.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

FirstDeviations usual_deviations(const ModelConfig& config) {
  constexpr double kUsual = 0.02;
  const double widening = std::sqrt(std::max(1.0, 768.0 / static_cast<double>(config.width)));
  const double matrix = config.initializer_range.value_or(kUsual * widening);
  return {.embedding = config.initializer_range.value_or(kUsual),
          .matrix = matrix,
          .projection = matrix / std::sqrt(2.0 * static_cast<double>(config.layers))};
}

std::vector<std::unique_ptr<ResidualBlock>> make_blocks(const DecoderSpec& spec,
                                                        std::int64_t layers, const Stream& stream) {
  std::vector<std::unique_ptr<ResidualBlock>> blocks;
  std::uint64_t site = 1;  // of dropout; 0 is the embedding's
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto kind = spec.kinds.find(kind_of_layer(spec.pattern, i));
    require(kind != spec.kinds.end(), "decoder: a layer of a kind that there is not");
    const std::string index = concat(".", i);
    blocks.push_back(
        std::make_unique<ResidualBlock>(ModuleName("h" + index, spec.files.layers + index),
                                        spec.residual, kind->second, site, stream));
    site += kind->second.size();
  }
  return blocks;
}

void collect_pattern_problems(const std::string& key, const std::string& pattern,
                              const std::string& letters, const std::string& kinds,
                              std::int64_t layers, std::vector<std::string>& problems) {
  if (pattern.find_first_not_of(letters) != std::string::npos)
    problems.push_back(concat(key, ": got ", pattern, ", want letters ", kinds));
  if (std::ssize(pattern) > layers) {
    problems.push_back(concat(key, ": got ", pattern, ", ", pattern.size(), " letters for ", layers,
                              " layers; want at most one for each layer, fewer are repeated"));
  }
}

}  // namespace hybrid_trainer
