#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "bpe_model.h"
#include "word_encoder.h"

namespace hybrid_trainer {

/// Byte-level BPE within GPT-2's words.
class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeModel model);
  ~BpeTokenizer() override;
  TokenizerKind kind() const override { return TokenizerKind::kBpe; }
  bool adds_prefix_space() const override { return model_.adds_prefix_space; }
  std::int64_t append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                             TextStart start) const override;
  void save(const std::filesystem::path& folder) const override;

 private:
  struct Scratch;
  std::unique_ptr<Scratch> take_scratch() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;

  BpeModel model_;  // without its tokens, which the base class has
  MergeTable merges_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // one for each concurrent call so far
};

}  // namespace hybrid_trainer
