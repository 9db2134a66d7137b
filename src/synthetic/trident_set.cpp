#include "hybrid_trainer/synthetic/trident_set.h"

#include <cmath>
#include <numbers>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/synthetic/cooling_curve.h"
#include "hybrid_trainer/synthetic/label_noise.h"
#include "src/synthetic/example_memory.h"

namespace hybrid_trainer {
namespace {

/// What is to be found out of an example.
struct Truth {
  std::int64_t motion, swing, plume_kind, brightness, cooling, region;
};

/// The keys of an example; each thing that is drawn has one of its own.
enum Drawn : std::uint64_t { kTruth, kVideo, kVisible, kInfrared, kSwing, kCurve, kGeo, kSaid };

Truth drawn_truth(const RandomKey& key) {
  RandomDraws draws(key);
  return {.motion = draws.below(kBlobMotions),
          .swing = draws.below(2),
          .plume_kind = draws.below(kPlumeKinds),
          .brightness = draws.below(2),
          .cooling = draws.below(2),
          .region = draws.below(4)};
}

void write_visible(std::span<float> image, std::int64_t size, bool downward, const RandomKey& key) {
  RandomDraws draws(key);
  const float base = draws.between(-0.5f, 0.5f), rise = draws.between(0.6f, 1.0f);
  const auto channels = static_cast<std::int64_t>(image.size()) / (size * size);
  float* pixel = image.data();
  for (std::int64_t row = 0; row < size; ++row)
    for (std::int64_t column = 0; column < size; ++column)
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto along = static_cast<float>(downward ? row : column);
        *pixel++ = base + rise * (along / static_cast<float>(size) - 0.5f);
      }
  RandomKey noise = key;
  noise.tensor += std::uint64_t{1} << 32;
  add_uniform_noise(image, 0.2f, noise);
}

/// The first channel swings 2 or 5 times, the others drift.
void write_kinematics(std::span<float> values, std::int64_t channels, bool fast,
                      const RandomKey& key) {
  RandomDraws draws(key);
  const float phase = draws.between(0, 2 * std::numbers::pi_v<float>);
  const auto steps = static_cast<std::int64_t>(values.size()) / channels;
  for (std::int64_t c = 0; c < channels; ++c) {
    const float from = draws.between(-1, 1), to = draws.between(-1, 1);
    for (std::int64_t t = 0; t < steps; ++t) {
      const float passed = static_cast<float>(t) / static_cast<float>(steps);
      values[static_cast<std::size_t>(t * channels + c)] =
          c > 0 ? from + (to - from) * passed
                : 0.8f * std::sin(2 * std::numbers::pi_v<float> * (fast ? 5 : 2) * passed + phase);
    }
  }
  RandomKey noise = key;
  noise.tensor += std::uint64_t{1} << 32;
  add_uniform_noise(values, 0.2f, noise);
}

/// Bits 0 and 1 of the region are the signs of the first two numbers; the others mean nothing.
void write_geo(std::span<float> numbers, std::int64_t region, const RandomKey& key) {
  RandomDraws draws(key);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float away = draws.between(0.2f, 1.0f), other = draws.between(-1, 1);
    numbers[i] = i > 1 ? other : (region >> i) % 2 == 1 ? away : -away;
  }
}

struct EventRow {
  std::span<std::int32_t> before, said;
};

void write_events(const EventRow& row, const Truth& truth, double noise, const RandomKey& key) {
  RandomDraws draws(key);
  std::int32_t before = TridentSet::kStart;
  for (std::size_t n = 0; n < row.said.size(); ++n) {
    std::int64_t event = 0;
    switch (n % 4) {
      case 0:
        event = truth.motion * 2 + truth.swing;
        break;
      case 1:
        event = truth.region * 2 + truth.plume_kind;
        break;
      case 2:
        event = (truth.cooling * 2 + truth.brightness) * 2 + truth.swing;
        break;
      default:
        event = row.said[n - 3];
    }
    row.before[n] = before;
    before = row.said[n] =
        static_cast<std::int32_t>(noisy_label(event, TridentSet::kEventKinds, noise, draws));
  }
}

std::vector<std::string> problems_of(const TridentShape& shape) {
  std::vector<std::string> problems;
  const auto at_least = [&](const char* what, std::int64_t got, std::int64_t wanted) {
    if (got < wanted)
      problems.push_back(concat("trident's ", what, ": got ", got, ", want at least ", wanted));
  };
  at_least("frames", shape.video.frames, 2);
  at_least("pixels of a video", std::min(shape.video.height, shape.video.width), 8);
  at_least("steps of the kinematics", shape.kinematic_steps, 16);
  at_least("samples of a cooling curve", shape.cooling_samples, 3);
  at_least("geographic numbers", shape.geo_numbers, 2);
  at_least("events", shape.events, 1);
  at_least("cells of the grid", shape.plumes.cells(), shape.plumes.plumes);
  if (shape.plumes.size % shape.plumes.grid != 0 || shape.plumes.size < 4 * shape.plumes.grid)
    problems.push_back(concat("trident's images: got ", shape.plumes.size, " pixels for ",
                              shape.plumes.grid,
                              " cells a side, want a multiple, 4 times or more"));
  return problems;
}

}  // namespace

TridentSet::TridentSet(const TridentShape& shape, std::uint64_t seed) : shape_(shape), seed_(seed) {
  const std::vector<std::string> problems = problems_of(shape);
  if (!problems.empty()) throw ConfigError(problems);
}

Batch TridentSet::empty_batch(std::int64_t examples, const Stream& stream) const {
  const VideoShape& video = shape_.video;
  const std::int64_t size = shape_.plumes.size, grid = shape_.plumes.grid;
  return empty_examples(examples,
                        {{"video", {video.frames, video.height, video.width, video.channels}},
                         {"visible", {size, size, shape_.visible_channels}},
                         {"infrared", {size, size, 1}},
                         {"kinematics", {shape_.kinematic_steps, shape_.kinematic_channels}},
                         {"cooling", {shape_.cooling_samples}},
                         {"geo", {shape_.geo_numbers}},
                         {"event_tokens", {shape_.events}, DType::kI32},
                         {"event_targets", {shape_.events}, DType::kI32},
                         {"plume_boxes", {grid, grid, kBoxNumbers}},
                         {"plume_kinds", {grid, grid}, DType::kI32},
                         {"cooling_constant", {1}}},
                        stream);
}

void TridentSet::write(const Batch& memory, std::uint64_t first) const {
  for (std::int64_t i = 0; i < memory.size(); ++i) {
    const ExampleMemory example(memory, i);
    const auto key = [&](Drawn what) {
      return RandomKey{seed_, first + static_cast<std::uint64_t>(i), what};
    };
    const Truth truth = drawn_truth(key(kTruth));
    write_moving_blob(example.floats("video"), shape_.video, static_cast<BlobMotion>(truth.motion),
                      key(kVideo));
    write_visible(example.floats("visible"), shape_.plumes.size, truth.brightness == 1,
                  key(kVisible));
    write_plume_scene({.image = example.floats("infrared"),
                       .boxes = example.floats("plume_boxes"),
                       .kinds = example.labels("plume_kinds")},
                      shape_.plumes, static_cast<PlumeKind>(truth.plume_kind), key(kInfrared));
    write_kinematics(example.floats("kinematics"), shape_.kinematic_channels, truth.swing == 1,
                     key(kSwing));
    const std::span<float> curve = example.floats("cooling");
    write_cooling_curve(curve, truth.cooling == 1, key(kCurve));
    write_geo(example.floats("geo"), truth.region, key(kGeo));
    write_events({example.labels("event_tokens"), example.labels("event_targets")}, truth,
                 shape_.event_noise, key(kSaid));
    RandomKey constant = key(kCurve);
    constant.tensor += std::uint64_t{1} << 32;
    example.floats("cooling_constant")[0] = static_cast<float>(
        fitted_cooling(curve) + shape_.cooling_deviation * random_normal(constant, 0));
  }
}

std::vector<BestLoss> TridentSet::best_losses() const {
  return {{"events.loss", noisy_label_entropy(kEventKinds, shape_.event_noise)},
          {"plumes.loss", best_plume_loss(shape_.plumes)},
          {"constant.loss", shape_.cooling_deviation * shape_.cooling_deviation}};
}

}  // namespace hybrid_trainer
