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

/// Target text of a clip: the prompt of its language and of the folder's task, what is
/// said, and the end. All but the first token is learnt. A text begins as a word within one does, with a
/// space, unless the space would be a token alone. A text with timestamps begins with one, and has neither
/// <|notimestamps|> nor the space. Of `format`, tokenizer, longest and control are read. Throws DataError
/// if the row and the folder name no language, or one that the model does not know, and the model knows
/// several; if timestamps are wrong; or if the text spells another special token of Whisper's.
ExampleRow clip_example(const ClipRow& clip, const ExampleFormat& format,
                        const SpeechTokens& tokens);

/// Reads a file of clips, or the files of a folder, as read_example_rows reads texts; of `format` it
/// takes tokenizer, longest, control, columns and called. A clip longer than longest_seconds is refused.
/// Throws as read_clip_rows.
ExampleRows read_clip_examples(const std::filesystem::path& path, const ExampleFormat& format,
                               double longest_seconds, const SpeechTokens& tokens);

/// Rows that have clips, each in a sequence of its own, with "features" (B, frames, bands) f32 of the
/// clips beside the tokens. In training they are masked at other places in each epoch, if that is set.
class ClipExamples final : public Dataset {
 public:
  struct Settings {
    EncoderConfig encoder;  // resolved
    bool masks = false;     // in training
    FeatureMasks feature_masks{};
    std::uint64_t seed = 0;  // of the masks
  };
  /// `rows`: not packed. Throws DataError where there are no rows.
  ClipExamples(std::vector<ExampleRow> rows, const PackedRows::Settings& layout,
               const Settings& settings);
  std::int64_t size() const override { return rows_.size(); }
  Batch empty_batch(std::int64_t examples, const Stream& stream) const override;
  /// Reads the clip. Throws DataError, with the row and the way out, if it cannot be read.
  void write(std::int64_t number, const ExampleMemory& memory) const override;
  bool pads() const override { return rows_.pads(); }
  std::uint64_t order_key() const override { return rows_.order_key(); }

 private:
  PackedRows rows_;
  Settings settings_;
};

/// Rows as a run of this configuration reads them: ClipExamples if they have clips, else PackedRows.
std::shared_ptr<const Dataset> dataset_of_rows(std::vector<ExampleRow> rows,
                                               PackedRows::Settings layout,
                                               const HybridTrainerConfig& config);

}  // namespace hybrid_trainer
