#pragma once

#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/data/tokenizer.h"

namespace hybrid_trainer {

/// Valid values of DataConfig::layout.
inline const std::vector<std::string>& data_layout_names() {
  static const std::vector<std::string> names{"windows", "packed", "apart"};
  return names;
}

/// Masking for the objectives `masked` and `masked_words`. 80 % of the chosen tokens become the mask token, 10 % a
/// random token of the data, and 10 % stay unchanged (Devlin et al. 2019, "BERT").
struct MaskSettings {
  double share = 0.15;  // share of chosen tokens in a sequence, rounded to at least one token
  std::int32_t mask_token = 0;
  std::int32_t words = 0;               // size of the data's vocabulary
  std::vector<std::int32_t> special{};  // tokens that are never chosen, in ascending order
  /// Marks each token that continues the word of the token before. If not empty, masks cover words.
  std::vector<bool> continues{};
};

/// Returns the number of chosen tokens in a sequence of `length` tokens. It is constant, so that
/// all parts of a batch have the same weight. A sequence has fewer chosen tokens if it has too few
/// ordinary tokens, or no words that fill the rest of this number.
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
  /// Constant: steps to load ahead, with each batch in memory; 0 loads a batch when it is needed.
  std::int64_t prefetch_depth = 1;

  /// Returns whether sequences are made from rows of examples, not from windows of a text.
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
    visit(Field{"carry_state", self.carry_state,
                "Start each sequence with the final state of the previous sequence of the text, "
                "without its gradient. Each row of a batch reads a different part of the text in "
                "order. For models that process sequences in segments (memory.segment_length)."});
    visit(Field{"layout", self.layout,
                "Layout of sequences. windows: cut from the tokens of a data folder. packed: "
                "several rows of a file of examples per sequence, which do not attend to each "
                "other (`hybrid finetune`). apart: one row of examples per sequence.",
                Range{}, data_layout_names()});
    visit(Field{"validation_fraction", self.validation_fraction,
                "Share of a file's examples held out for validation, at least one example. 0 "
                "validates on the training rows. Unused with a separate validation file or with a "
                "data folder, which has a validation split.",
                Range::fraction()}
              .essential(Question::kData)
              .needs_any({{KeyTest{"data.layout", KeyTest::Kind::kIsOneOf, {"packed", "apart"}},
                           KeyTest{"model.labels", KeyTest::Kind::kIsNoneOf, {"[]"}},
                           KeyTest{"model.family", KeyTest::Kind::kIsOneOf, {"series", "trident"}}},
                          "it applies only to examples (`hybrid finetune`), images, arrays and "
                          "tables of series"}));
    visit(Field{
        "control_tokens", self.control_tokens,
        "Encoding of text in a file of examples that spells a special token, such as <|im_end|>: "
        "as the token (tokens) or as plain text (text). Chat templates always produce tokens.",
        Range{}, control_text_names()});
    visit(
        Field{"columns", self.columns,
              "Names of the columns of the examples, such as prompt=question,completion=answer. "
              "NAME= leaves NAME out; empty uses the usual names. For tables of series: "
              "speed,height,target=fuel. series=COLUMN starts a new series when the value of "
              "COLUMN changes, and time=COLUMN keeps windows from crossing gaps in time."}
            .needs_any(
                {{KeyTest{"data.layout", KeyTest::Kind::kIsOneOf, {"packed", "apart"}},
                  KeyTest{"model.labels", KeyTest::Kind::kIsNoneOf, {"[]"}},
                  KeyTest{"model.family", KeyTest::Kind::kIsOneOf, {"series"}}},
                 "it applies only to examples (`hybrid finetune`), images and tables of series"}));
    visit(Field{"mask_frames", self.mask_frames,
                "For speech, silence about 5 % of the frames in training, different frames in each "
                "epoch (SpecAugment, like Whisper's apply_spec_augment)."}
              .unless("model.encoder.features", {"0"}, "it applies only to speech models"));
    visit(Field{"mirror_pictures", self.mirror_pictures,
                "For images, mirror half of the images in training, different ones in each epoch."}
              .unless("model.labels", {"[]"}, "it applies only to image models"));
    visit(constant("prefetch_depth", self.prefetch_depth, Range::between(0, 1024))
              .on_resume(OnResume::kMayChange));
  }
};

}  // namespace hybrid_trainer
