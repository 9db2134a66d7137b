// Trains a heterogeneous network in phases. A 3-D CNN encodes a video of a moving dot, and a
// transformer encodes a slow or fast signal. A decoder attends to both and describes them, for
// example "quickly left". A second loss predicts the number of oscillations.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "hybrid_trainer/trainer/hybrid_trainer.h"

using namespace hybrid_trainer;

namespace {

constexpr std::int64_t kFrames = 4, kSide = 8, kTimes = 24, kWidth = 32, kBatch = 32, kSteps = 300;
constexpr const char* kWords[] = {"<begin>", "slowly", "quickly", "left", "right", "up", "down"};
constexpr std::int64_t kVocabulary = 7, kSentence = 2;

/// Returns the network as a list of parts. Each part names its inputs, which determine its input
/// sizes.
std::vector<graph::Node> network() {
  using namespace graph;
  const auto silu = activation(kernels::ActivationKind::kSilu);
  return {
      input("video", {kFrames, kSide, kSide, 1}),
      part("video.cnn", "video",
           sequence({convolution({.outputs = 16, .window = around(3, {1, 2, 2})}), group_norm(4),
                     silu, convolution({.outputs = kWidth, .window = around(3, {2, 2, 2})})})),
      part("video.tokens", "video.cnn", sequence({tokens(), positions()})),

      input("signal", {kTimes, 1}),
      part("signal.embed", "signal", sequence({linear(kWidth), positions()})),
      transformer("signal.blocks", "signal.embed", {.layers = 2}),

      concatenate("seen", {"video.tokens", "signal.blocks"}),
      token_input("words", {kSentence}),
      part("text.embed", "words", sequence({embedding(kVocabulary, kWidth), positions()})),
      transformer("text.blocks", "text.embed", {.layers = 2, .causal = true, .source = "seen"}),
      part("text.head", "text.blocks", linear(kVocabulary)),
      cross_entropy("text", "text.head", "next_words", {.smoothing = 0.02f}),

      part("swings.head", "signal.blocks", sequence({mean(), linear(1)})),
      huber("swings", "swings.head", "swings", /*weight=*/0.3),
  };
}

/// Makes random examples, which depend only on `step`. The tensors have the names of the network's
/// inputs.
Batch examples(std::uint64_t step, const ModuleGraph& model, const Stream& stream) {
  constexpr std::int64_t kMoves[][2] = {{0, -1}, {0, 1}, {-1, 0}, {1, 0}};  // rows, columns
  const Batch batch = model.empty_batch(kBatch, stream, kSentence);
  for (const auto& [name, tensor] : batch.tensors()) fill_zero(tensor, stream);
  auto* const video = batch.at("video").data<float>();
  auto* const signal = batch.at("signal").data<float>();
  auto* const words = batch.at("words").data<std::int32_t>();
  auto* const next = batch.at("next_words").data<std::int32_t>();
  for (std::int64_t i = 0; i < kBatch; ++i) {
    const auto draw = philox({9, step, 0}, static_cast<std::uint64_t>(i));
    const std::int32_t direction = draw[0] % 4, quick = draw[1] % 2;
    const std::int64_t row = 3 + draw[2] % 2, column = 3 + draw[3] % 2;
    for (std::int64_t t = 0; t < kFrames; ++t)
      video[((i * kFrames + t) * kSide + row + t * kMoves[direction][0]) * kSide + column +
            t * kMoves[direction][1]] = 1;
    const float swings = 1 + static_cast<float>(quick) + 0.8f * to_unit_float(draw[1]);
    for (std::int64_t t = 0; t < kTimes; ++t)
      signal[i * kTimes + t] = std::sin(swings * 6.28f * static_cast<float>(t) / kTimes);
    batch.at("swings").data<float>()[i] = swings;
    next[2 * i] = words[2 * i + 1] = 1 + quick;  // teacher forcing
    next[2 * i + 1] = 3 + direction;
  }
  return batch;
}

/// Returns the most likely word at a position of the first sentence.
const char* likeliest(ModuleGraph& model, const Batch& batch, std::int64_t place,
                      const Stream& stream) {
  const Tensor scores = model.result_of("text.head", batch, {.training = false}, stream);
  const float* const row = scores.data<float>() + place * kVocabulary;
  return kWords[std::max_element(row, row + kVocabulary) - row];
}

}  // namespace

int main() try {
  const auto config = HybridTrainerConfig::builder()
                          .data_config({.batch_size = kBatch, .sequence_length = kSentence})
                          .steps(kSteps)
                          .phase_config({.warmup_steps = 40,
                                         .full_steps = 20,
                                         .max_predict_steps = 10,
                                         .skip_backward = {.trial_share = 0.1}})
                          .optimizer_config({.name = "adamw", .learning_rate = 3e-3})
                          .schedule_config({.warmup_steps = 20})
                          .mixed_precision_config(MixedPrecisionConfig::conservative())
                          .build();
  const Stream stream(MemoryPool::create("device"));
  ModuleGraph model(network(), /*seed=*/1, stream);
  model.set_parts({{.pattern = "video.*", .recompute = 1}});  // the CNN saves only its input
  HybridTrainer trainer(model, config, stream);
  while (trainer.steps_done() < kSteps)
    trainer.step(examples(static_cast<std::uint64_t>(trainer.steps_done()), model, stream));

  const Batch unseen = examples(1 << 20, model, stream);
  const auto measures = model.wait_for_measures(unseen, {.training = false}, stream);
  const double words = graph::mean_of(measures, "text.accuracy"),
               swings = graph::mean_of(measures, "swings.absolute_error");
  std::printf("It says \"%s %s\" of a dot and a signal that it has not seen.\n",
              likeliest(model, unseen, 0, stream), likeliest(model, unseen, 1, stream));
  std::printf("%.1f %% of words are right. Swings are right to within %.2f.\n", 100 * words,
              swings);
  bool all_phases = true;
  for (const Phase phase : kAllPhases) {
    const std::int64_t steps = trainer.machine().statistics().of(phase).steps;
    std::printf("%-8s %4d steps\n", name_of(phase), static_cast<int>(steps));
    all_phases = all_phases && steps > 0;
  }
  return all_phases && words > 0.95 && swings < 0.2 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return static_cast<int>(error.code());
}
