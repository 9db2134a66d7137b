#pragma once

#include "hybrid_trainer/audio/log_mel.h"
#include "hybrid_trainer/audio/speech_reader.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/model_config.h"

namespace hybrid_trainer {

/// Seconds that a model of this configuration, which is resolved, hears at once; 0: it hears nothing.
double heard_seconds(const ModelConfig& model);

/// The features of a clip, and how much of them is the clip.
struct HeardClip {
  Tensor features;          // (frames, bands) f32 on the host
  std::int64_t frames = 0;  // of 10 ms; those behind are silence
};

/// Makes the features that an encoder of speech reads of WAV files. Serves one thread.
class ClipFeatures {
 public:
  /// `encoder`: of a resolved configuration.
  explicit ClipFeatures(const EncoderConfig& encoder)
      : log_mel_(encoder.features), frames_(2 * encoder.context) {}
  std::int64_t bands() const { return log_mel_.mels(); }
  std::int64_t frames() const { return frames_; }  // that the encoder reads at once

  /// Of a clip that the encoder reads at once as many frames as it reads, of a longer one all. Throws
  /// what read_wav throws.
  HeardClip of(const FilePart& clip);
  /// The features of a clip that the encoder reads at once, into `to` (frames, bands).
  void write(const FilePart& clip, float* to);

 private:
  LogMel log_mel_;
  std::int64_t frames_;
  SpeechReader reader_;
};

}  // namespace hybrid_trainer
