#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/text/added_tokens.h"
#include "src/data/text/text_pipeline.h"
#include "src/data/text/token_texts.h"

namespace hybrid_trainer {

/// Contents of a Hugging Face tokenizer.json except its model.
struct TokenizerPipeline {
  std::vector<std::string> spelling;  // text of each id before the decoder's steps
  std::size_t min_table_rows = 0;     // ids from here on are special tokens
  AddedTokens added;                  // found in the original text
  AddedTokens added_normalized;       // found after the normalizer
  TextPipeline text{{}, {}};
  std::vector<TemplatePiece> single = {{TemplatePiece::kFirstText, 0}};
  std::vector<TemplatePiece> pair = {{TemplatePiece::kFirstText, 0},
                                     {TemplatePiece::kSecondText, 1}};
  std::vector<DecoderStep> decoder;
  bool adds_prefix_space = false;
};

/// A tokenizer with a TokenizerPipeline. Its subclass encodes words.
class PipelineTokenizer : public Tokenizer {
 public:
  std::int64_t min_table_rows() const override {
    return static_cast<std::int64_t>(pipeline_.min_table_rows);
  }
  bool adds_prefix_space() const override { return pipeline_.adds_prefix_space; }
  std::vector<TemplatePiece> input_template(bool is_pair) const override {
    return is_pair ? pipeline_.pair : pipeline_.single;
  }
  std::string decode(std::span<const std::int32_t> ids) const override;
  /// Returns a token as tokenizer.json spells it, such as "##ing".
  const std::string& spelling(std::int32_t id) const {
    return pipeline_.spelling.at(static_cast<std::size_t>(id));
  }

 protected:
  PipelineTokenizer(TokenizerPipeline pipeline, std::optional<std::int32_t> end_of_text,
                    TokenizerFiles files);

  const TokenizerPipeline& pipeline() const { return pipeline_; }
  /// Appends the ids of a text. Calls append_word(word) to append the ids of each word.
  template <class F>
  void append_words(std::string_view text, std::vector<std::int32_t>& ids, TextStart start,
                    ControlText control, const F& append_word) const {
    const bool skips_special = control == ControlText::kAsText;
    PiecePlace place{.continues = start == TextStart::kContinuation};
    for (const auto& piece : pipeline_.added.split(text, skips_special)) {
      if (piece.id) {
        ids.push_back(*piece.id);
      } else {
        append_piece(piece.text, place, skips_special, ids, append_word);
      }
      place.at_start = false;
    }
  }

 private:
  /// Appends the tokens of the text between two added tokens.
  template <class F>
  void append_piece(std::string_view text, PiecePlace place, bool skips_special,
                    std::vector<std::int32_t>& ids, const F& append_word) const {
    std::string normalized;
    if (pipeline_.text.normalizes()) text = normalized = pipeline_.text.normalized(text, place);
    for (const auto& piece : pipeline_.added_normalized.split(text, skips_special)) {
      if (piece.id) {
        ids.push_back(*piece.id);
      } else {
        pipeline_.text.for_each_word(piece.text, place, append_word);
      }
      place.at_start = false;
    }
  }

  TokenizerPipeline pipeline_;
};

}  // namespace hybrid_trainer
