#pragma once

#include "hybrid_trainer/core/random.h"
#include "src/data/synthetic/plume_scene.h"
#include "src/data/synthetic/synthetic_set.h"

namespace hybrid_trainer {

/// Draws a curve y = a·exp(−k·t)·(1 + noise up to 1 %) at times t = 0 to 1. a is in [0.8, 1.2). k is in
/// [0.5, 1) of a slow curve, and in [1.5, 2) of a fast one.
void write_cooling_curve(std::span<float> curve, bool fast, const RandomKey& key);

/// k by a straight line through the logarithms of the curve, of least squares. The noise of a curve moves
/// it by less than 0.07, so that it tells slow from fast.
double fitted_cooling(std::span<const float> curve);

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

struct TridentShape {
  VideoShape video{};
  std::int64_t visible_channels = 3;
  PlumeShape plumes{};  // of the infrared image; the visible one has as many pixels
  std::int64_t kinematic_steps = 32, kinematic_channels = 4;
  std::int64_t cooling_samples = 16;
  std::int64_t geo_numbers = 4;  // at least 2
  std::int64_t events = 8;       // of a sequence
  double event_noise = 0.2;
  double cooling_deviation = 0.2;
};

/// A scene that several sensors see. No sensor alone tells what happens:
///
/// | tensor | holds |
/// | --- | --- |
/// | video (B, frames, H, W, C) | a blob that moves in one of 4 directions, and one that is still |
/// | visible (B, S, S, C) | brightness that rises to the right or downward |
/// | infrared (B, S, S, 1) | two plumes, both narrow or both broad |
/// | kinematics (B, T, C) | a slow or a fast swing, of random phase, and drifts |
/// | cooling (B, samples) | a curve that cools slowly or fast |
/// | geo (B, numbers) | a place, of which two signs tell the region of 4 |
/// | event_tokens, event_targets (B, N) i32 | tokens before and to be said; kStart is before the first |
/// | plume_boxes (B, G, G, 4), plume_kinds (B, G, G) i32 | see PlumeScene |
/// | cooling_constant (B, 1) | what a fit to the curve gives, with noise |
///
/// Each event has one of 8 kinds. What tells it goes by its number mod 4: the motion and the swing; the
/// region and the plumes' kind; cooling, brightness and swing; the token said three before. With
/// probability `event_noise` another one is said. The noise of sensors is bounded, so that what they show
/// is never in doubt. So the best losses are those of what is said: noisy_label_entropy(8, event_noise) of an
/// event, cooling_deviation² of the constant, and best_plume_loss of a cell of the grid.
class TridentSet final : public SyntheticSet {
 public:
  static constexpr std::int64_t kEventKinds = 8;
  static constexpr std::int32_t kStart = 8;  // token
  static constexpr std::int64_t kVocabulary = 9;

  /// Throws ConfigError where the shape cannot be drawn.
  TridentSet(const TridentShape& shape, std::uint64_t seed);
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(std::int64_t number, const ExampleMemory& memory) const override;
  /// Of "events.loss", "plumes.loss" and "constant.loss".
  std::vector<BestLoss> best_losses() const override;

 private:
  TridentShape shape_;
  std::uint64_t seed_;
};

}  // namespace hybrid_trainer
