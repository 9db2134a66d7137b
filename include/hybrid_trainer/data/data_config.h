#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// Valid values of DataConfig::layout.
inline const std::vector<std::string>& data_layout_names() {
  static const std::vector<std::string> names{"windows", "packed", "apart"};
  return names;
}

/// Masking for the objective `masked`. 80 % of the chosen tokens become the mask token, 10 % a
/// random token of the data, and 10 % stay unchanged (Devlin et al. 2019, "BERT").
struct MaskSettings {
  double share = 0.15;  // share of a sequence's tokens that are chosen, rounded, at least one token
  std::int32_t mask_token = 0;
  std::int32_t words = 0;               // size of the data's vocabulary
  std::vector<std::int32_t> special{};  // tokens that are never chosen, in ascending order
};

/// Returns the number of chosen tokens per sequence, constant so that batch parts weigh the same. A
/// sequence with fewer tokens that are not special has fewer.
std::int64_t masked_tokens(double share, std::int64_t length);

/// Settings that determine how training examples are made from the data. JSON group `data`.
struct DataConfig {
  std::int64_t batch_size = 8;
  std::int64_t sequence_length = 256;
  bool shuffle = true;
  bool carry_state = false;
  std::string layout = "windows";
  double validation_fraction = 0.1;
  std::string control_tokens = "tokens";
  std::string columns{};
  bool mask_frames = false;
  bool mirror_pictures = false;
  /// Constant: number of steps to load ahead in a background thread. Each prefetched batch is held
  /// in memory; 0 loads each batch when its step needs it.
  std::int64_t prefetch_depth = 1;

  /// Returns whether each sequence is a row of examples.
  bool is_rows() const { return layout != "windows"; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"batch_size", self.batch_size, "Sequences per micro-batch.",
                Range::between(1, 1 << 20)}
              .essential(Question::kData));
    visit(Field{"sequence_length", self.sequence_length, "Tokens per sequence.",
                Range::between(1, 1 << 20)}
              .essential(Question::kData));
    visit(Field{"shuffle", self.shuffle,
                "Visit the sequences of an epoch in a seeded random order instead of sequentially."}
              .needs("data.carry_state", {"false"}, "data.carry_state reads the text in order"));
    visit(
        Field{"carry_state", self.carry_state,
              "Read the text in order, each row of a batch from a different part, and start each "
              "sequence with the final state of the row's previous sequence, without its gradient. "
              "For models that process sequences in segments (memory.segment_length)."});
    visit(Field{"layout", self.layout,
                "Layout of sequences. windows cuts them from the tokens of a data folder. For a "
                "file of examples (`hybrid finetune`), packed puts several rows into one sequence, "
                "and no row sees another; apart puts each row into a separate sequence.",
                Range{}, data_layout_names()});
    visit(Field{"validation_fraction", self.validation_fraction,
                "Share of a file's examples held back for validation, at least one. 0 validates on "
                "the training rows. It is not used with a separate validation file, or with a data "
                "folder, which has its own split.",
                Range::fraction()}
              .essential(Question::kData)
              .needs_any({{KeyTest{"data.layout", KeyTest::Kind::kIsOneOf, {"packed", "apart"}},
                           KeyTest{"model.labels", KeyTest::Kind::kIsNoneOf, {"[]"}},
                           KeyTest{"model.family", KeyTest::Kind::kIsOneOf, {"series", "trident"}}},
                          "it applies only to examples (`hybrid finetune`), images, arrays and "
                          "tables of series"}));
    visit(Field{
        "control_tokens", self.control_tokens,
        "How text in a file of examples that spells a special token, such as <|im_end|>, is "
        "encoded: as the token (tokens) or as plain text (text). Chats always get their tokens.",
        Range{}, control_text_names()});
    visit(
        Field{"columns", self.columns,
              "Columns of the examples by name: prompt=question,completion=answer. NAME= without a "
              "column leaves NAME out. Empty reads columns by their own names. For tables of "
              "series: speed,height,target=fuel, with series=COLUMN, which starts a new series "
              "when its value changes, and time=COLUMN, whose gaps no window crosses."}
            .needs_any(
                {{KeyTest{"data.layout", KeyTest::Kind::kIsOneOf, {"packed", "apart"}},
                  KeyTest{"model.labels", KeyTest::Kind::kIsNoneOf, {"[]"}},
                  KeyTest{"model.family", KeyTest::Kind::kIsOneOf, {"series"}}},
                 "it applies only to examples (`hybrid finetune`), images and tables of series"}));
    visit(Field{"mask_frames", self.mask_frames,
                "For speech, silence about 5 % of the frames in training, different ones in each "
                "epoch (SpecAugment, as in Whisper's apply_spec_augment)."}
              .unless("model.encoder.features", {"0"}, "it applies only to speech models"));
    visit(Field{"mirror_pictures", self.mirror_pictures,
                "For images, mirror half of them in training, different ones in each epoch."}
              .unless("model.labels", {"[]"}, "it applies only to image models"));
    visit(constant("prefetch_depth", self.prefetch_depth, Range::between(0, 1024))
              .on_resume(OnResume::kMayChange));
  }
};

}  // namespace hybrid_trainer
