#include <algorithm>

#include "hybrid_trainer/nn/module_graph.h"
#include "src/models/families/families.h"

namespace hybrid_trainer {

namespace {

/// Makes a temporal convolution over the window, a transformer, a mean, and one output number.
std::unique_ptr<Network> series_make(const ModelConfig& config, std::uint64_t seed,
                                     const Stream& stream) {
  const graph::Transformer blocks{.layers = config.layers,
                                  .heads = static_cast<int>(config.heads),
                                  .intermediate_size = config.intermediate_size,
                                  .dropout = static_cast<float>(config.dropout)};
  std::vector<graph::Node> nodes{
      graph::input("kinematics", {config.context, config.series.channels}),
      graph::part("kinematics.convolution", "kinematics",
                  graph::sequence(
                      {graph::convolution({.outputs = config.width, .window = graph::around(5)}),
                       graph::activation(kernels::ActivationKind::kSilu), graph::positions()})),
      graph::transformer("kinematics.layers", "kinematics.convolution", blocks),
      graph::part("value.head", "kinematics.layers",
                  graph::sequence({graph::mean(), graph::linear(1)})),
      graph::squared_error("prediction", "value.head", "value")};
  return std::make_unique<ModuleGraph>(std::move(nodes), seed, stream);
}

ModelConfig series_resolved(const ModelConfig& given) {
  ModelConfig config = given;
  if (config.intermediate_size == 0) config.intermediate_size = 4 * config.width;
  config.series.channels = std::max<std::int64_t>(config.series.channels, 1);
  return config;
}

void series_collect_problems(const ModelConfig& config, std::vector<std::string>& problems) {
  if (config.heads > 0 && config.width % config.heads != 0)
    problems.push_back(concat("model.heads: got ", config.heads,
                              ", which does not divide model.width ", config.width));
  if (config.vocabulary != 0)
    problems.push_back(concat("model.vocabulary: got ", config.vocabulary,
                              ", but time series have no tokens; leave it out"));
}

}  // namespace

ModelFamily series_family() {
  const ModelConfig tiny{.family = "series", .layers = 2, .heads = 4, .width = 32, .context = 32};
  return {.name = "series",
          .title = "Series",
          .keys = {"heads", "dropout", "intermediate_size", "series"},
          .collect_problems = series_collect_problems,
          .resolved = series_resolved,
          .make = series_make,
          .presets = {{"series-tiny", tiny, 32, tiny.context, "adamw", 2e-3, 0}},
          .is_language_model = false,
          .purpose = {.task = ""},
          .data = "TABLE",
          .fine_tuning = {.layout = ""},
          .adapted_parts = {"kinematics.layers.*"},
          .with_depth = with_layers};
}

}  // namespace hybrid_trainer
