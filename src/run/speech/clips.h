#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/model_config.h"
#include "src/data/audio/log_mel.h"
#include "src/data/audio/sound.h"
#include "src/data/examples/clip_rows.h"
#include "src/data/examples/example_rows.h"
#include "src/data/examples/packed_rows.h"
#include "src/run/speech/speech_tokens.h"

namespace hybrid_trainer {

/// Returns the seconds in one window of this resolved model, or 0 if it takes no audio.
double max_clip_seconds(const ModelConfig& model);

struct EncodedClip {
  Tensor features;          // (frames, bands) f32 on the host
  std::int64_t frames = 0;  // frames of 10 ms in the clip; later frames are silence
};

/// Computes the input features of a speech encoder from WAV files. Not thread-safe.
class ClipFeatures {
 public:
  explicit ClipFeatures(const EncoderConfig& encoder)
      : log_mel_(encoder.features), frames_(2 * encoder.context) {}
  std::int64_t bands() const { return log_mel_.mels(); }
  std::int64_t frames() const { return frames_; }  // frames in one window of the encoder

  /// Computes a whole clip's features, padded to at least one encoder window. Throws as read_wav.
  EncodedClip of(const FilePart& clip);
  /// Writes the features of a clip that fits into one window to `to` (frames, bands).
  void write(const FilePart& clip, float* to);

 private:
  LogMel log_mel_;
  std::int64_t frames_;
  SpeechReader reader_;
};

/// Makes the example of a clip: the prompt tokens of its language and of the folder's task, the
/// transcript, and the end token. All tokens except the first are targets. A text starts with a
/// space, unless that space would be a separate token. A text with timestamps starts with a
/// timestamp, and has neither <|notimestamps|> nor the space. Uses tokenizer, longest and control
/// of `format`. Throws DataError if the model is multilingual and neither the row nor the folder
/// has a known language, if timestamps are invalid, or if the text spells another special token of
/// Whisper.
ExampleRow clip_example(const ClipRow& clip, const ExampleFormat& format,
                        const SpeechTokens& tokens);

/// Reads clips as read_example_rows reads texts. Uses tokenizer, longest, control, columns and
/// called of `format`. Rejects clips longer than longest_seconds. Throws like read_clip_rows.
ExampleRows read_clip_examples(const std::filesystem::path& path, const ExampleFormat& format,
                               double longest_seconds, const SpeechTokens& tokens);

/// Rows with clips, one per sequence. Batches have "features" (B, frames, bands) f32 and tokens. In
/// training, the features may be masked at random positions that change in each epoch.
class ClipExamples final : public Dataset {
 public:
  struct Settings {
    EncoderConfig encoder;  // resolved
    bool masks = false;     // whether to mask features, for training
    FeatureMasks feature_masks{};
    std::uint64_t seed = 0;  // seed of the masks
  };
  ClipExamples(std::vector<ExampleRow> rows, const PackedRows::Settings& layout,
               const Settings& settings);
  std::int64_t size() const override { return rows_.size(); }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  void write(std::int64_t number, const ExampleMemory& memory) const override;
  bool pads() const override { return rows_.pads(); }
  std::uint64_t order_key() const override { return rows_.order_key(); }

 private:
  PackedRows rows_;
  Settings settings_;
};

/// Returns ClipExamples if the rows have clips, else PackedRows.
std::shared_ptr<const Dataset> dataset_of_rows(std::vector<ExampleRow> rows,
                                               PackedRows::Settings layout,
                                               const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
