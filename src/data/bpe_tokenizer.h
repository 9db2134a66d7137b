#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/added_tokens.h"
#include "src/data/text_pipeline.h"
#include "src/data/token_texts.h"
#include "src/data/word_model.h"

namespace hybrid_trainer {

/// What a tokenizer.json of Hugging Face says.
struct BpePipeline {
  std::vector<std::string> spelling;  // of each id, as the decoder takes it
  std::size_t least_table = 0;        // ids from here on are of special tokens
  AddedTokens added;                  // found in the text as it is
  AddedTokens added_normalized;       // found after the normalizer
  TextPipeline text{{}, {}};
  BpeVocabulary vocabulary;
  std::vector<std::int32_t> template_start, template_end;  // around a document
  std::vector<DecoderStep> decoder;
  bool adds_prefix_space = false;
};

/// Byte-pair encoding by such a pipeline.
class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpePipeline pipeline, std::optional<std::int32_t> end_of_text, TokenizerFiles files);
  ~BpeTokenizer() override;
  TokenizerKind kind() const override { return TokenizerKind::kBpe; }
  std::int64_t least_table() const override {
    return static_cast<std::int64_t>(pipeline_.least_table);
  }
  bool adds_prefix_space() const override { return pipeline_.adds_prefix_space; }
  std::vector<std::int32_t> template_start() const override { return pipeline_.template_start; }
  std::vector<std::int32_t> template_end() const override { return pipeline_.template_end; }
  void append_tokens(std::string_view text, std::vector<std::int32_t>& ids, TextStart start,
                     ControlText control) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::size_t last_cut(std::string_view text, std::size_t first) const override;

 private:
  struct Scratch;
  std::unique_ptr<Scratch> take_scratch() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;
  void append_piece(std::string_view text, PiecePlace place, bool skips_special, Scratch& scratch,
                    std::vector<std::int32_t>& ids) const;
  bool may_cut(std::string_view before, std::string_view after) const;

  BpePipeline pipeline_;  // without its vocabulary, which the model has
  WordModel model_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // one for each concurrent call so far
};

}  // namespace hybrid_trainer
