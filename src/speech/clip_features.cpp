#include "hybrid_trainer/speech/clip_features.h"

#include <algorithm>

namespace hybrid_trainer {

double heard_seconds(const ModelConfig& model) {
  constexpr double kSecondsOfPlace = 0.02;
  if (model.encoder.features == 0) return 0;
  return kSecondsOfPlace * static_cast<double>(model.encoder.context);
}

HeardClip ClipFeatures::of(const FilePart& clip) {
  const std::vector<float> samples = reader_.read(clip);
  const bool is_long = std::ssize(samples) > frames_ * kFrameSamples;
  const std::vector<float> features =
      is_long ? log_mel_.of_all(samples) : log_mel_.of(samples, frames_);
  const Stream host(MemoryPool::create("host"));
  const Tensor result = Tensor::empty({std::ssize(features) / bands(), bands()}, DType::kF32,
                                      MemoryKind::kData, host);
  std::ranges::copy(features, result.data<float>());
  return {result, (std::ssize(samples) + kFrameSamples - 1) / kFrameSamples};
}

void ClipFeatures::write(const FilePart& clip, float* to) {
  std::ranges::copy(log_mel_.of(reader_.read(clip), frames_), to);
}

}  // namespace hybrid_trainer
