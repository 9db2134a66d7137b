#include "bpe_tokenizer.h"

#include <utility>

#include "bpe_files.h"
#include "hybrid_trainer/core/error.h"
#include "word_splitter.h"

namespace hybrid_trainer {

/// What one thread needs to encode.
struct BpeTokenizer::Scratch {
  Scratch(const MergeTable& merges, const std::array<std::int32_t, 256>& byte_ids)
      : encoder(merges, byte_ids) {}
  WordSplitter splitter;
  WordEncoder encoder;
};

BpeTokenizer::BpeTokenizer(BpeModel model)
    : Tokenizer(std::exchange(model.tokens, {}), model.end_of_text),
      model_(std::move(model)),
      merges_(model_.merges) {}

BpeTokenizer::~BpeTokenizer() = default;

std::unique_ptr<BpeTokenizer::Scratch> BpeTokenizer::take_scratch() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>(merges_, model_.byte_ids);
}

void BpeTokenizer::give_back(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

std::int64_t BpeTokenizer::append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                                         TextStart start) const {
  if (text.empty()) return 0;
  std::string prefixed;
  if (model_.adds_prefix_space && start == TextStart::kDocument && text.front() != ' ') {
    prefixed = concat(' ', text);
    text = prefixed;
  }
  auto scratch = take_scratch();
  scratch->splitter.start(text);
  for (auto word = scratch->splitter.next(); !word.empty(); word = scratch->splitter.next()) {
    scratch->encoder.append(word, ids);
  }
  const std::int64_t divided = scratch->splitter.divided_bytes();
  give_back(std::move(scratch));
  return divided;
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
  save_bpe_files(model_, tokens(), folder);
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeModel model) {
  return std::make_unique<BpeTokenizer>(std::move(model));
}

}  // namespace hybrid_trainer
