#pragma once

#include <cstdint>
#include <span>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

struct VideoShape {
  std::int64_t frames = 8, height = 16, width = 16, channels = 1;
  std::int64_t elements() const { return frames * height * width * channels; }
};

/// Where a blob moves to.
enum class BlobMotion { kRight, kLeft, kDown, kUp };
inline constexpr std::int64_t kBlobMotions = 4;

/// Draws a blob that crosses 0.4 of the picture in a video (frames, height, width, channels), and another
/// one that stays where it is, so that no single frame tells the motion. Noise is up to 0.15 of their
/// brightness. From the first to the last frame, the middle of what becomes brighter moves as the blob does.
void write_moving_blob(std::span<float> video, const VideoShape& shape, BlobMotion motion,
                       const RandomKey& key);

}  // namespace hybrid_trainer
