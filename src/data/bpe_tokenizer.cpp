#include "src/data/bpe_tokenizer.h"

#include <utility>

#include "hybrid_trainer/files/utf8.h"
#include "src/data/text_cuts.h"
#include "src/data/word_encoder.h"

namespace hybrid_trainer {

namespace {

std::vector<std::string> bytes_within(const BpePipeline& pipeline) {
  std::vector<std::string> tokens;
  for (const std::string& token : pipeline.spelling)
    tokens.push_back(decoded_within(token, pipeline.decoder));
  return tokens;
}

}  // namespace

/// What one thread needs to encode.
struct BpeTokenizer::Scratch {
  explicit Scratch(const WordModel& model) : encoder(model) {}
  WordEncoder encoder;
};

BpeTokenizer::BpeTokenizer(BpePipeline pipeline, std::optional<std::int32_t> end_of_text,
                           TokenizerFiles files)
    : Tokenizer(bytes_within(pipeline), end_of_text, std::move(files)),
      pipeline_(std::move(pipeline)),
      model_(std::exchange(pipeline_.vocabulary, {})) {
  pipeline_.added.finish();
  pipeline_.added_normalized.finish();
}

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
  return std::make_unique<Scratch>(model_);
}

void BpeTokenizer::give_back(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(scratch));
}

/// `text` lies between two added tokens.
void BpeTokenizer::append_piece(std::string_view text, PiecePlace place, bool skips_special,
                                Scratch& scratch, std::vector<std::int32_t>& ids) const {
  std::string normalized;
  if (pipeline_.text.normalizes()) text = normalized = pipeline_.text.normalized(text, place);
  const auto append = [&](std::string_view word) { scratch.encoder.append(word, ids); };
  for (const auto& piece : pipeline_.added_normalized.split(text, skips_special)) {
    if (piece.id) {
      ids.push_back(*piece.id);
    } else {
      pipeline_.text.for_each_word(piece.text, place, append);
    }
    place.at_start = false;
  }
}

void BpeTokenizer::append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                                 TextStart start, ControlText control) const {
  const bool skips_special = control == ControlText::kAsText;
  PiecePlace place{.continues = start == TextStart::kContinuation};
  auto scratch = take_scratch();
  for (const auto& piece : pipeline_.added.split(text, skips_special)) {
    if (piece.id) {
      ids.push_back(*piece.id);
    } else {
      append_piece(piece.text, place, skips_special, *scratch, ids);
    }
    place.at_start = false;
  }
  give_back(std::move(scratch));
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> parts;
  for (const std::int32_t id : ids) {
    token_bytes(id);  // throws where there is no such token
    const std::string& spelling = pipeline_.spelling[static_cast<std::size_t>(id)];
    if (!spelling.empty()) parts.push_back(spelling);  // else an id that no token has
  }
  return decoded(std::move(parts), pipeline_.decoder);
}

bool BpeTokenizer::may_cut(std::string_view before, std::string_view after) const {
  const char32_t left = decode_utf8(before, 0).value, right = decode_utf8(after, 0).value;
  const std::string_view blank = pipeline_.text.blank();
  if (before == " ") before = blank;
  if (after == " ") after = blank;
  // The second search sees blanks as they were, or as a normalizer replaced them.
  const char32_t new_left = decode_utf8(before, 0).value, new_right = decode_utf8(after, 0).value;
  const AddedTokens& normalized = pipeline_.added_normalized;
  if (!pipeline_.added.may_cut(left, right) || !normalized.may_cut(left, right) ||
      !normalized.may_cut(new_left, new_right))
    return false;
  // What is before may have been composed, and then be part of a token.
  const bool goes_on = normalized.goes_on_with(right) || normalized.goes_on_with(new_right);
  if (pipeline_.text.composes() && goes_on) return false;
  const TextPipeline::Cut cut = pipeline_.text.may_cut(left, right);
  if (cut != TextPipeline::Cut::kWhereTheModelDivides) return cut == TextPipeline::Cut::kYes;
  return !model_.ignores_merges() && model_.may_divide(before, after);
}

std::size_t BpeTokenizer::last_cut(std::string_view text, std::size_t first) const {
  return last_place_between(text, first, [&](std::string_view before, std::string_view after) {
    return may_cut(before, after);
  });
}

}  // namespace hybrid_trainer
