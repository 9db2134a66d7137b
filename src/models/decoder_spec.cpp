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

void set_block_pattern(Attention::Spec& attention, const ModelConfig& config) {
  const BlockPatternConfig& given = config.attention_pattern;
  if (!given.is_on()) return;
  attention.heads.pattern = {.block = static_cast<std::int32_t>(given.block),
                             .local = static_cast<std::int32_t>(given.local_blocks),
                             .global = static_cast<std::int32_t>(given.global_blocks),
                             .random = static_cast<std::int32_t>(given.random_blocks)};
  attention.pattern_seed = static_cast<std::uint64_t>(given.seed);
}

void collect_block_pattern_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  const BlockPatternConfig& pattern = config.attention_pattern;
  const std::string local = "model.attention_pattern.local_blocks: got ";
  if (!pattern.is_on() && (pattern.global_blocks > 0 || pattern.random_blocks > 0)) {
    problems.push_back(concat(local, pattern.local_blocks,
                              " beside global_blocks or random_blocks; want at least 1, a query's "
                              "own block"));
  }
  if (pattern.is_on() && config.window > 0) {
    problems.push_back(concat(local, pattern.local_blocks, " beside model.window ", config.window,
                              "; want one of them, local blocks are a window of blocks"));
  }
  if (pattern.is_on() && config.two_way) {
    problems.push_back(concat(local, pattern.local_blocks,
                              ", but a pattern is for decoders, not for model.two_way"));
  }
}

}  // namespace hybrid_trainer
