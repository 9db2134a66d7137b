#include "hybrid_trainer/synthetic/moving_blob.h"

#include <cmath>
#include <vector>

#include "hybrid_trainer/synthetic/random_draws.h"

namespace hybrid_trainer {
namespace {

constexpr float kRadius = 0.1f, kWay = 0.4f, kNoise = 0.15f;

/// Brightness along one axis of a blob in the middle of it, in parts of the axis.
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
  /// Adds a blob to a frame.
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

}  // namespace

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
  RandomKey noise = key;
  noise.tensor += std::uint64_t{1} << 32;
  add_uniform_noise(video, kNoise, noise);
}

}  // namespace hybrid_trainer
