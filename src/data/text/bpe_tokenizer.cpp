#include "src/data/text/bpe_tokenizer.h"

#include <cstdio>
#include <cstring>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/data/text/unicode.h"
#include "src/data/text/word_splitter.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::int32_t kNoId = BpeVocabulary::kNoId;
constexpr const char* kLeavesOut =
    "omits characters that have no token, because it has no unk_token (like Hugging Face's "
    "tokenizers)";

[[noreturn]] void throw_no_token(std::string_view character, const std::string& unknown) {
  std::string bytes;
  for (const char byte : character) {
    char hex[8];
    std::snprintf(hex, sizeof(hex), " %02X", static_cast<unsigned char>(byte));
    bytes += hex;
  }
  throw DataError(concat("the character with the bytes", bytes,
                         " has no token, and model.unk_token of tokenizer.json, \"", unknown,
                         "\", is not in model.vocab"));
}

constexpr std::size_t kShortWord = 32;  // from here on a heap is faster than scanning all pairs
constexpr std::int32_t kGone = -1;      // id of a symbol merged into its left neighbor

std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = word.size() * 0x9E3779B97F4A7C15u;
  for (std::size_t i = 0; i < word.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t part = 0;
    std::memcpy(&part, word.data() + i, std::min(sizeof(part), word.size() - i));
    hash = (std::rotl(hash, 23) ^ part) * 0x9FB21C651E98DF25u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

MergeTable::MergeTable(const std::vector<BpeMerge>& merges) {
  rules_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const BpeMerge& merge : merges)
    rules_[key_of(merge.left, merge.right)] = {rank++, merge.joined};
}

WordModel::WordModel(BpeVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), merges_(vocabulary_.merges), borders_(borders()) {
  if (!vocabulary_.by_bytes) splits_ = bytes_are_separate();
  if (!vocabulary_.ignores_merges) return;
  for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id)
    words_.emplace(vocabulary_.tokens[id], narrow<std::int32_t>(id));
}

/// Returns whether no byte has a token, or whether all bytes have tokens that occur in no merge.
bool WordModel::bytes_are_separate() const {
  const std::set<std::int32_t> bytes(vocabulary_.byte_ids.begin(), vocabulary_.byte_ids.end());
  if (bytes.contains(kNoId)) return bytes.size() == 1;
  return std::ranges::none_of(vocabulary_.merges, [&](const BpeMerge& merge) {
    return bytes.contains(merge.left) || bytes.contains(merge.right) ||
           bytes.contains(merge.joined);
  });
}

std::vector<BpeMerge> WordModel::borders() const {
  std::vector<BpeMerge> pairs;
  const auto token = [&](std::int32_t id) -> const std::string& {
    return vocabulary_.tokens[static_cast<std::size_t>(id)];
  };
  for (const BpeMerge& merge : vocabulary_.merges) {
    if (token(merge.left).empty() || token(merge.right).empty())
      continue;  // no text contains these
    const std::int32_t before = ends_of(final_character(token(merge.left))).second;
    const std::int32_t after = ends_of(character_at(token(merge.right), 0)).first;
    pairs.push_back({before, after, 0});
  }
  return pairs;
}

std::optional<std::int32_t> WordModel::whole_word(std::string_view word) const {
  if (words_.empty()) return {};
  const auto found = words_.find(word);
  return found == words_.end() ? std::nullopt : std::optional(found->second);
}

std::int32_t WordModel::id_of(std::string_view character) const {
  if (vocabulary_.by_bytes) return vocabulary_.byte_ids[static_cast<unsigned char>(character[0])];
  const CodePoint found = decode_utf8(character, 0);
  if (found.bytes == 0) return kNoId;
  const auto id = vocabulary_.character_ids.find(found.value);
  return id == vocabulary_.character_ids.end() ? kNoId : id->second;
}

bool WordModel::has_all_bytes(std::string_view character) const {
  return std::ranges::all_of(character, [&](char byte) {
    return vocabulary_.byte_ids[static_cast<unsigned char>(byte)] != kNoId;
  });
}

std::pair<std::int32_t, std::int32_t> WordModel::ends_of(std::string_view character) const {
  const std::int32_t id = id_of(character);
  if (!vocabulary_.by_bytes && id != kNoId) return {id, id};
  const auto of_byte = [&](char byte) {
    return vocabulary_.byte_ids[static_cast<unsigned char>(byte)];
  };
  return {of_byte(character.front()), of_byte(character.back())};
}

bool WordModel::may_divide(std::string_view before, std::string_view after) const {
  const std::int32_t left = ends_of(before).second, right = ends_of(after).first;
  return splits_ && left != kNoId && right != kNoId &&
         borders_.find(left, right).rank == MergeTable::kNone;
}

void WordModel::append_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  bool is_unknown = false;  // an unknown token has yet to be appended
  const auto append_unknown = [&] {
    if (is_unknown) symbols.push_back(*vocabulary_.unknown);
  };
  for (std::size_t i = 0; i < word.size();) {
    const auto character = vocabulary_.by_bytes ? word.substr(i, 1) : character_at(word, i);
    i += character.size();
    const std::int32_t id = id_of(character);
    if (id != kNoId) {
      append_unknown();
      is_unknown = false;
      symbols.push_back(id);
    } else if (!vocabulary_.by_bytes && has_all_bytes(character)) {
      // The bytes precede a pending unknown token, as in Hugging Face's tokenizers.
      for (const char byte : character)
        symbols.push_back(vocabulary_.byte_ids[static_cast<unsigned char>(byte)]);
    } else if (vocabulary_.unknown) {
      if (!vocabulary_.fuses_unknown) append_unknown();
      is_unknown = true;
    } else if (!vocabulary_.missing_unknown.empty()) {
      throw_no_token(character, vocabulary_.missing_unknown);
    } else if (!has_warned_->exchange(true, std::memory_order_relaxed)) {
      warn("tokenizer.json", kLeavesOut);
    }
  }
  append_unknown();
}

/// Splits one word into tokens by repeatedly joining the pair of lowest rank, leftmost first. A
/// word of n bytes takes O(n log n) in the worst case. If the symbols are characters, a word may be
/// a whole document, so it is divided into parts between characters that no merge can join. Words
/// and parts are cached in a table of fixed size. Not thread-safe.
class WordEncoder {
 public:
  explicit WordEncoder(const WordModel& model)
      : model_(&model), merges_(&model.merges()), cache_(std::size_t{1} << kCacheBits) {}
  /// Throws DataError if a character needs an unk_token that has no id.
  void append(std::string_view word, std::vector<std::int32_t>& ids);

 private:
  static constexpr std::size_t kCacheBits = 15;
  static constexpr std::size_t kCachedBytes = 22;
  static constexpr std::size_t kCachedIds = 10;
  struct alignas(64) CachedWord {
    std::uint8_t bytes = 0;  // 0: free
    std::uint8_t count = 0;
    char text[kCachedBytes];
    std::int32_t ids[kCachedIds];
  };
  struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;
    std::int32_t left, right, joined;
  };
  static bool comes_later(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
  void append_cached(std::string_view part, std::vector<std::int32_t>& ids);
  void append_merged(std::string_view part, std::vector<std::int32_t>& ids);
  void append_short(std::vector<std::int32_t>& ids);
  void append_long(std::vector<std::int32_t>& ids);
  void push_candidate(std::int32_t position);

  const WordModel* model_;
  const MergeTable* merges_;
  std::vector<std::int32_t> initial_;  // symbols of a part before merging
  std::vector<CachedWord> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

void WordEncoder::append(std::string_view word, std::vector<std::int32_t>& ids) {
  if (const auto id = model_->whole_word(word)) return ids.push_back(*id);
  if (model_->by_bytes()) return append_cached(word, ids);
  std::size_t begin = 0;
  std::string_view before;
  for (std::size_t i = 0; i < word.size();) {
    const auto character = character_at(word, i);
    if (i > 0 && model_->may_divide(before, character)) {
      append_cached(word.substr(begin, i - begin), ids);
      begin = i;
    }
    before = character;
    i += character.size();
  }
  if (begin < word.size()) append_cached(word.substr(begin), ids);
}

void WordEncoder::append_cached(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() > kCachedBytes) return append_merged(word, ids);
  CachedWord& cached = cache_[hash_of(word) >> (64 - kCacheBits)];
  if (cached.bytes == word.size() && std::memcmp(cached.text, word.data(), word.size()) == 0) {
    ids.insert(ids.end(), cached.ids, cached.ids + cached.count);
    return;
  }
  const std::size_t before = ids.size();
  append_merged(word, ids);
  const std::size_t count = ids.size() - before;
  if (count > kCachedIds) return;
  cached.bytes = narrow<std::uint8_t>(word.size());
  cached.count = narrow<std::uint8_t>(count);
  std::memcpy(cached.text, word.data(), word.size());
  std::copy_n(ids.end() - static_cast<std::ptrdiff_t>(count), count, cached.ids);
}

void WordEncoder::append_merged(std::string_view part, std::vector<std::int32_t>& ids) {
  initial_.clear();
  model_->append_symbols(part, initial_);
  if (initial_.size() <= kShortWord) return append_short(ids);
  append_long(ids);
}

void WordEncoder::append_short(std::vector<std::int32_t>& ids) {
  std::array<std::int32_t, kShortWord> symbols;
  std::array<MergeTable::Rule, kShortWord> rules;  // rules of symbols i and i + 1
  std::size_t count = initial_.size();
  std::ranges::copy(initial_, symbols.begin());
  for (std::size_t i = 0; i + 1 < count; ++i) rules[i] = merges_->find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == MergeTable::kNone) break;
    symbols[best] = rules[best].joined;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (std::size_t i = best; i + 1 < count; ++i) rules[i] = rules[i + 1];
    if (best > 0) rules[best - 1] = merges_->find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) rules[best] = merges_->find(symbols[best], symbols[best + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void WordEncoder::push_candidate(std::int32_t position) {
  if (position < 0) return;
  const Symbol& symbol = symbols_[static_cast<std::size_t>(position)];
  if (symbol.next < 0) return;
  const std::int32_t right = symbols_[static_cast<std::size_t>(symbol.next)].id;
  const MergeTable::Rule rule = merges_->find(symbol.id, right);
  if (rule.rank == MergeTable::kNone) return;
  heap_.push_back({rule.rank, position, symbol.id, right, rule.joined});
  std::ranges::push_heap(heap_, comes_later);
}

void WordEncoder::append_long(std::vector<std::int32_t>& ids) {
  const auto count = narrow<std::int32_t>(initial_.size(), "the length of a word");
  symbols_.clear();
  heap_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    symbols_.push_back({initial_[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i < count; ++i) push_candidate(i);
  while (!heap_.empty()) {
    const Candidate best = heap_.front();
    std::ranges::pop_heap(heap_, comes_later);
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<std::size_t>(best.position)];
    if (left.id != best.left || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.joined;
    right.id = kGone;
    left.next = right.next;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = best.position;
    push_candidate(left.previous);
    push_candidate(best.position);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
    ids.push_back(symbols_[static_cast<std::size_t>(i)].id);
  }
}

struct BpeTokenizer::Scratch {
  explicit Scratch(const WordModel& model) : encoder(model) {}
  WordEncoder encoder;
};

BpeTokenizer::BpeTokenizer(TokenizerPipeline pipeline, BpeVocabulary vocabulary,
                           std::optional<std::int32_t> end_of_text, TokenizerFiles files)
    : PipelineTokenizer(std::move(pipeline), end_of_text, std::move(files)),
      model_(std::move(vocabulary)) {}

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

void BpeTokenizer::append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                                 TextStart start, ControlText control) const {
  auto scratch = take_scratch();
  append_words(text, ids, start, control,
               [&](std::string_view word) { scratch->encoder.append(word, ids); });
  give_back(std::move(scratch));
}

bool BpeTokenizer::may_cut(std::string_view before, std::string_view after) const {
  const char32_t left = decode_utf8(before, 0).value, right = decode_utf8(after, 0).value;
  const std::string_view blank = pipeline().text.blank();
  if (before == " ") before = blank;
  if (after == " ") after = blank;
  // Tokens found after the normalizer may see a blank or, if the normalizer replaces it, "▁".
  const char32_t new_left = decode_utf8(before, 0).value, new_right = decode_utf8(after, 0).value;
  const AddedTokens& normalized = pipeline().added_normalized;
  if (!pipeline().added.may_cut(left, right) || !normalized.may_cut(left, right) ||
      !normalized.may_cut(new_left, new_right))
    return false;
  // Composing the preceding text may make it the beginning of a token that continues after the cut.
  const bool continues = normalized.continues_with(right) || normalized.continues_with(new_right);
  if (pipeline().text.composes() && continues) return false;
  const TextPipeline::Cut cut = pipeline().text.may_cut(left, right);
  if (cut != TextPipeline::Cut::kAtModelSplits) return cut == TextPipeline::Cut::kYes;
  return !model_.ignores_merges() && model_.may_divide(before, after);
}

std::size_t BpeTokenizer::last_split_point(std::string_view text, std::size_t first) const {
  return last_match_between(text, first, [&](std::string_view before, std::string_view after) {
    return may_cut(before, after);
  });
}

}  // namespace hybrid_trainer
