#include "src/data/synthetic/trident_set.h"

#include <cmath>
#include <numbers>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"

namespace hybrid_trainer {

namespace {

double time_of(std::size_t sample, std::size_t samples) {
  return static_cast<double>(sample) / static_cast<double>(samples - 1);
}

constexpr float kRadius = 0.1f, kWay = 0.4f, kNoise = 0.15f;

/// Writes the brightness of a blob along one axis. `middle` is in units of the axis length.
void write_profile(std::vector<float>& profile, float middle) {
  for (std::size_t i = 0; i < profile.size(); ++i) {
    const float away =
        ((static_cast<float>(i) + 0.5f) / static_cast<float>(profile.size()) - middle) / kRadius;
    profile[i] = std::exp(-0.5f * away * away);
  }
}

class BlobPainter {
 public:
  BlobPainter(std::span<float> video, const VideoShape& shape)
      : video_(video),
        shape_(shape),
        rows_(static_cast<std::size_t>(shape.height)),
        columns_(static_cast<std::size_t>(shape.width)) {}
  void add(std::int64_t frame, float x, float y) {
    write_profile(columns_, x);
    write_profile(rows_, y);
    float* pixel = video_.data() + frame * shape_.height * shape_.width * shape_.channels;
    for (const float row : rows_)
      for (const float column : columns_)
        for (std::int64_t c = 0; c < shape_.channels; ++c) *pixel++ += row * column;
  }

 private:
  std::span<float> video_;
  VideoShape shape_;
  std::vector<float> rows_, columns_;
};

struct GroundTruth {
  std::int64_t motion, swing, plume_kind, brightness, cooling, region;
};

/// Random keys of an example, one for each drawn part.
enum RandomStream : std::uint64_t {
  kTruth,
  kVideo,
  kVisible,
  kInfrared,
  kSwing,
  kCurve,
  kGeo,
  kSaid
};

GroundTruth sampled_ground_truth(const RandomKey& key) {
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
  add_uniform_noise(image, 0.2f, second_key(key));
}

/// Writes a first channel that oscillates 2 or 5 times, and further channels that drift.
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
  add_uniform_noise(values, 0.2f, second_key(key));
}

/// Writes random numbers; bits 0 and 1 of the region are the signs of the first two.
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

void write_events(const EventRow& row, const GroundTruth& truth, double noise,
                  const RandomKey& key) {
  RandomDraws draws(key);
  std::int32_t before = TridentSet::kStart;
  for (std::size_t n = 0; n < row.said.size(); ++n) {
    std::int64_t event = 0;
    switch (n % 4) {
      case 0: event = truth.motion * 2 + truth.swing; break;
      case 1: event = truth.region * 2 + truth.plume_kind; break;
      case 2: event = (truth.cooling * 2 + truth.brightness) * 2 + truth.swing; break;
      default: event = row.said[n - 3];
    }
    row.before[n] = before;
    before = row.said[n] =
        narrow<std::int32_t>(noisy_label(event, TridentSet::kEventKinds, noise, draws));
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
                              " cells per side, want a multiple of the cells, at least 4 times"));
  return problems;
}

}  // namespace

void write_cooling_curve(std::span<float> curve, bool fast, const RandomKey& key) {
  RandomDraws draws(key);
  const double height = draws.between(0.8f, 1.2f);
  const double constant = (fast ? 1.5 : 0.5) + 0.5 * draws.unit();
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double noise = 1 + draws.between(-0.01f, 0.01f);
    curve[i] = static_cast<float>(height * noise * std::exp(-constant * time_of(i, curve.size())));
  }
}

double fitted_cooling(std::span<const float> curve) {
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double away = time_of(i, curve.size()) - 0.5;  // distance from the mean time
    products += away * std::log(static_cast<double>(curve[i]));
    squares += away * away;
  }
  return -products / squares;
}

void write_moving_blob(std::span<float> video, const VideoShape& shape, BlobMotion motion,
                       const RandomKey& key) {
  RandomDraws draws(key);
  std::fill(video.begin(), video.end(), 0.0f);
  const bool along_x = motion == BlobMotion::kRight || motion == BlobMotion::kLeft;
  const bool ahead = motion == BlobMotion::kRight || motion == BlobMotion::kDown;
  const float low = draws.between(0.1f, 0.5f), beside = draws.between(0.15f, 0.85f);
  const float still_x = draws.between(0.1f, 0.9f), still_y = draws.between(0.1f, 0.9f);
  BlobPainter painter(video, shape);
  for (std::int64_t frame = 0; frame < shape.frames; ++frame) {
    const float passed = static_cast<float>(frame) / static_cast<float>(shape.frames - 1);
    const float along = low + kWay * (ahead ? passed : 1 - passed);
    painter.add(frame, along_x ? along : beside, along_x ? beside : along);
    painter.add(frame, still_x, still_y);
  }
  add_uniform_noise(video, kNoise, second_key(key));
}

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

void TridentSet::write(std::int64_t number, const ExampleMemory& memory) const {
  const auto key = [&](RandomStream what) {
    return RandomKey{seed_, static_cast<std::uint64_t>(number), what};
  };
  const GroundTruth truth = sampled_ground_truth(key(kTruth));
  write_moving_blob(memory.floats("video"), shape_.video, static_cast<BlobMotion>(truth.motion),
                    key(kVideo));
  write_visible(memory.floats("visible"), shape_.plumes.size, truth.brightness == 1, key(kVisible));
  write_plume_scene({.image = memory.floats("infrared"),
                     .boxes = memory.floats("plume_boxes"),
                     .kinds = memory.labels("plume_kinds")},
                    shape_.plumes, static_cast<PlumeKind>(truth.plume_kind), key(kInfrared));
  write_kinematics(memory.floats("kinematics"), shape_.kinematic_channels, truth.swing == 1,
                   key(kSwing));
  const std::span<float> curve = memory.floats("cooling");
  write_cooling_curve(curve, truth.cooling == 1, key(kCurve));
  write_geo(memory.floats("geo"), truth.region, key(kGeo));
  write_events({memory.labels("event_tokens"), memory.labels("event_targets")}, truth,
               shape_.event_noise, key(kSaid));
  memory.floats("cooling_constant")[0] = static_cast<float>(
      fitted_cooling(curve) + shape_.cooling_deviation * random_normal(second_key(key(kCurve)), 0));
}

std::vector<BestLoss> TridentSet::best_losses() const {
  return {{"events.loss", noisy_label_entropy(kEventKinds, shape_.event_noise)},
          {"plumes.loss", best_plume_loss(shape_.plumes)},
          {"constant.loss", shape_.cooling_deviation * shape_.cooling_deviation}};
}

}  // namespace hybrid_trainer
