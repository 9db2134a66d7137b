#pragma once

#include "hybrid_trainer/core/random.h"
#include "src/data/synthetic/plume_scene.h"
#include "src/data/synthetic/synthetic_set.h"

namespace hybrid_trainer {

/// Draws a curve y = a·exp(−k·t)·(1 + noise up to 1 %) at times t = 0 to 1, with a in [0.8, 1.2)
/// and k in [0.5, 1) for a slow curve or [1.5, 2) for a fast one.
void write_cooling_curve(std::span<float> curve, bool fast, const RandomKey& key);

/// Fits k by linear least squares to the curve's logarithms. Noise changes it by less than 0.07.
double fitted_cooling(std::span<const float> curve);

struct VideoShape {
  std::int64_t frames = 8, height = 16, width = 16, channels = 1;
  std::int64_t elements() const { return frames * height * width * channels; }
};

enum class BlobMotion { kRight, kLeft, kDown, kUp };
inline constexpr std::int64_t kBlobMotions = 4;

/// Draws a video (frames, height, width, channels) with a blob that moves by 0.4 of the image and a
/// second blob that stays in place, so that no single frame shows the motion. The noise is at most
/// 0.15 of the brightness of the blobs. The sum of the pixel positions, weighted by the difference
/// between the last and the first frame, points in the direction of motion.
void write_moving_blob(std::span<float> video, const VideoShape& shape, BlobMotion motion,
                       const RandomKey& key);

struct TridentShape {
  VideoShape video{};
  std::int64_t visible_channels = 3;
  PlumeShape plumes{};  // shape of the infrared image; the visible image has the same size
  std::int64_t kinematic_steps = 32, kinematic_channels = 4;
  std::int64_t cooling_samples = 16;
  std::int64_t geo_numbers = 4;  // numbers that describe a place, at least 2
  std::int64_t events = 8;       // events per sequence
  double event_noise = 0.2;
  double cooling_deviation = 0.2;
};

/// A scene with several sensors. No single sensor determines an event:
///
/// | tensor | contents |
/// | --- | --- |
/// | video (B, frames, H, W, C) | a blob that moves in one of 4 directions, and a still one |
/// | visible (B, S, S, C) | brightness that increases to the right or downward |
/// | infrared (B, S, S, 1) | two plumes, both narrow or both broad |
/// | kinematics (B, T, C) | a slow or fast oscillation of random phase, and drifts |
/// | cooling (B, samples) | a curve that cools slowly or fast |
/// | geo (B, numbers) | a place; two signs give one of 4 regions |
/// | event_tokens, event_targets (B, N) i32 | previous and target tokens, from kStart |
/// | plume_boxes (B, G, G, 4), plume_kinds (B, G, G) i32 | see PlumeScene |
/// | cooling_constant (B, 1) | noisy result of a fit to the curve |
///
/// An event has one of 8 kinds. Its index modulo 4 selects the inputs that determine it: motion and
/// oscillation; region and plume kind; cooling, brightness and oscillation; the token three
/// positions earlier. With probability `event_noise` the target is another kind. The sensors are
/// never ambiguous. The minimum losses are noisy_label_entropy(8, event_noise) for an event,
/// cooling_deviation² for the constant, and best_plume_loss for a cell of the grid.
class TridentSet final : public SyntheticSet {
 public:
  static constexpr std::int64_t kEventKinds = 8;
  static constexpr std::int32_t kStart = 8;  // token before the first event
  static constexpr std::int64_t kVocabulary = 9;

  /// Throws ConfigError if a size of `shape` is too small or its sizes do not fit together.
  TridentSet(const TridentShape& shape, std::uint64_t seed);
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(std::int64_t number, const ExampleMemory& memory) const override;
  std::vector<BestLoss> best_losses() const override;

 private:
  TridentShape shape_;
  std::uint64_t seed_;
};

}  // namespace hybrid_trainer
