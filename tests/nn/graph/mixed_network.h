#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "tests/support/gradient_check.h"

namespace hybrid_trainer::graph {

inline constexpr std::int64_t kWords = 5, kWordTypes = 7;

/// A network with all node types: two convolutions over video, a transformer over a series, a text
/// decoder that reads both, a number, and a grid of objects.
inline std::vector<Node> mixed_nodes(float dropout = 0) {
  const auto silu = activation(kernels::ActivationKind::kSilu);
  return {
      input("video", {3, 4, 4, 2}),
      input("series", {6, 3}),
      token_input("words", {kWords}),
      token_input("words_seen", {}),
      part("video.cnn", "video",
           sequence({convolution({.outputs = 6, .window = around(3)}), group_norm(2), silu,
                     convolution({.outputs = 8, .window = around(3, {2, 2, 2})})})),
      part("video.tokens", "video.cnn", sequence({tokens(), positions(), class_tokens(2)})),
      part("series.embed", "series", sequence({linear(8), sinusoids()})),
      transformer("series.blocks", "series.embed",
                  {.layers = 3,
                   .heads = 2,
                   .intermediate_size = 12,
                   .relative = RelativeBuckets{.count = 8, .most = 4, .bidirectional = true},
                   .dropout = dropout}),
      concatenate("seen", {"video.tokens", "series.blocks"}),
      part("text.words", "words", sequence({embedding(kWordTypes, 8), positions()})),
      transformer("text.blocks", "text.words",
                  {.layers = 2,
                   .heads = 2,
                   .causal = true,
                   .score_scale = 0.8f,
                   .relative = RelativeBuckets{.count = 4, .most = 4},
                   .dropout = dropout,
                   .source = "seen",
                   .lengths = "words_seen"}),
      part("text.head", "text.blocks", linear(kWordTypes)),
      cross_entropy("text", "text.head", "next",
                    {.weight = 0.7, .smoothing = 0.1f, .counts_targets = true}),
      part("speed.mean", "seen", sequence({mean(), residual({linear(8), silu})})),
      part("speed.first", "video.tokens", token(0)),
      sum("speed.sum", {"speed.mean", "speed.first", "speed.mean"}),
      concatenate("speed.all", {"speed.sum", "speed.first"}, ConcatAxis::kChannels),
      part("speed.head", "speed.all", linear(2)),
      huber("speed", "speed.head", "speeds", 0.5, 0.8f),
      part("grid.head", "video.cnn", convolution({.outputs = 5 + 3, .window = around(1)})),
      detection("grid", "grid.head", "kinds", "boxes", {.classes = 3, .positive_weight = 2}),
  };
}

/// A batch of random numbers that depends only on the seed.
inline Batch mixed_batch(std::int64_t size, const Stream& stream, std::uint64_t seed = 0) {
  const Tensor next = testing::random_tokens({size, kWords}, kWordTypes, 5 + seed, stream);
  next.data<std::int32_t>()[2] = kNoTarget;
  const Tensor lengths = testing::random_tokens({size}, 9, 6 + seed, stream),
               kinds = testing::random_tokens({size, 2, 2, 2}, 3, 7 + seed, stream);
  for (std::int64_t i = 0; i < size; ++i) lengths.data<std::int32_t>()[i] += 6;
  for (std::int64_t i = 0; i < kinds.elements(); i += 3) kinds.data<std::int32_t>()[i] = kNoTarget;
  Batch batch({{"video", testing::normal_tensor({size, 3, 4, 4, 2}, 1 + seed, stream)},
               {"series", testing::normal_tensor({size, 6, 3}, 2 + seed, stream)},
               {"words", testing::random_tokens({size, kWords}, kWordTypes, 3 + seed, stream)},
               {"words_seen", lengths},
               {"next", next},
               {"speeds", testing::normal_tensor({size, 2}, 4 + seed, stream)},
               {"kinds", kinds},
               {"boxes", testing::normal_tensor({size, 2, 2, 2, 4}, 8 + seed, stream)}},
              kWords);
  batch.set_targets(static_cast<double>(size * kWords - 1));
  return batch;
}

}  // namespace hybrid_trainer::graph
