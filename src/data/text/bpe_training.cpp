#include "src/data/text/bpe_training.h"

#include <queue>

#include "hybrid_trainer/core/error.h"
#include "src/core/machine.h"
#include "src/core/narrow.h"
#include "src/core/threads.h"
#include "src/data/text/bpe_tokenizer.h"
#include "src/data/text/text_pipeline.h"
#include "src/data/text/token_texts.h"
#include "src/data/text/tokenizer_files.h"
#include "src/data/text/unicode.h"
#include "src/data/text/word_splitter.h"
#include "src/files/text.h"

namespace hybrid_trainer {

std::uint32_t WordCounts::hash_of(std::string_view word) {
  const std::size_t hash = std::hash<std::string_view>()(word);
  return narrow<std::uint32_t>((hash ^ hash >> 32) & 0xFFFFFFFF);
}

void WordCounts::add(std::string_view word, std::uint32_t hash, std::int64_t count) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    Entry& entry = entries_[slots_[i] - 1];
    if (entry.hash != hash || text_of(entry) != word) continue;
    entry.count += count;
    return;
  }
  entries_.push_back(
      {count, text_.size(), narrow<std::uint32_t>(word.size(), "the length of a word"), hash});
  text_ += word;
  slots_[i] = narrow<std::uint32_t>(entries_.size(), "the number of words");
}

void WordCounts::add(const WordCounts& other) {
  for (const Entry& entry : other.entries_) add(other.text_of(entry), entry.hash, entry.count);
}

void WordCounts::clear() {
  text_.clear();
  entries_.clear();
  std::ranges::fill(slots_, 0u);
}

void WordCounts::grow() {
  constexpr std::size_t kMinSlots = 64;
  slots_.assign(std::max(kMinSlots, 2 * slots_.size()), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t place = 0; place < entries_.size(); ++place) {
    std::size_t i = entries_[place].hash & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = narrow<std::uint32_t>(place + 1);
  }
}

bool WordCounts::comes_first(const Entry& a, const Entry& b) const {
  if (a.count != b.count) return a.count > b.count;
  if (a.hash != b.hash) return a.hash < b.hash;
  return text_of(a) < text_of(b);
}

std::int64_t WordCounts::drop_rarest(std::size_t limit) {
  if (weight() <= limit) return 0;
  std::ranges::sort(entries_, [&](const Entry& a, const Entry& b) { return comes_first(a, b); });
  WordCounts rest;
  for (const Entry& entry : entries_) {
    if (rest.weight() + entry.size + kWordWeight > limit) break;
    rest.add(text_of(entry), entry.hash, entry.count);
  }
  const std::int64_t dropped = words() - rest.words();
  *this = std::move(rest);
  return dropped;
}

/// Counts of pairs of neighboring tokens within words. Updates the counts when a pair is joined.
class PairCounts {
 public:
  /// Adds a word of these symbols that occurs `count` times. Must not be called after a join.
  void add_word(std::span<const std::int32_t> symbols, std::int64_t count);
  struct Pair {
    std::int64_t count = 0;
    std::int32_t left = 0;
    std::int32_t right = 0;
  };
  /// Removes and returns the most frequent pair. Among equally frequent pairs, this is the pair
  /// with the smallest ids. Its count is 0 if no pair is left.
  Pair take_most_frequent();
  /// Replaces every occurrence of the pair by `joined`, a new id, left to right within a word.
  void join(const Pair& pair, std::int32_t joined) {
    const auto words = std::move(pairs_.at(key_of(pair.left, pair.right)).words);
    for (const std::int32_t index : words) join_in_word(index, pair, joined);
    pairs_.erase(key_of(pair.left, pair.right));
  }

 private:
  struct Word {
    std::size_t begin;  // offset in symbols_
    std::int32_t size;
    std::int64_t count;
  };
  struct Entry {
    std::int64_t count = 0;
    std::vector<std::int32_t> words;  // words that have, or had, the pair
  };
  struct LessFrequent {
    bool operator()(const Pair& a, const Pair& b) const {
      if (a.count != b.count) return a.count < b.count;
      return std::pair(a.left, a.right) > std::pair(b.left, b.right);
    }
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{std::bit_cast<std::uint32_t>(left)} << 32 |
           std::bit_cast<std::uint32_t>(right);
  }
  void add_pair(std::int32_t left, std::int32_t right, std::int64_t count, std::int32_t word);
  void push_new_pairs();
  void join_in_word(std::int32_t index, const Pair& pair, std::int32_t joined);

  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Entry> pairs_;
  std::vector<std::uint64_t> new_pairs_;  // pairs not yet in the queue
  // Counts in the queue may be too high, because a pair's count can decrease after it was pushed.
  std::priority_queue<Pair, std::vector<Pair>, LessFrequent> queue_;
};

void PairCounts::add_word(std::span<const std::int32_t> symbols, std::int64_t count) {
  const auto index = narrow<std::int32_t>(words_.size(), "the number of words");
  words_.push_back(
      {symbols_.size(), narrow<std::int32_t>(symbols.size(), "the length of a word"), count});
  symbols_.insert(symbols_.end(), symbols.begin(), symbols.end());
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
    add_pair(symbols[i], symbols[i + 1], count, index);
}

void PairCounts::add_pair(std::int32_t left, std::int32_t right, std::int64_t count,
                          std::int32_t word) {
  const auto [found, is_new] = pairs_.try_emplace(key_of(left, right));
  if (is_new) new_pairs_.push_back(found->first);
  Entry& entry = found->second;
  entry.count += count;
  if (entry.words.empty() || entry.words.back() != word) entry.words.push_back(word);
}

void PairCounts::push_new_pairs() {
  for (const std::uint64_t key : new_pairs_) {
    queue_.push({pairs_.at(key).count, narrow<std::int32_t>(key >> 32),
                 narrow<std::int32_t>(key & 0xFFFFFFFFu)});
  }
  new_pairs_.clear();
}

PairCounts::Pair PairCounts::take_most_frequent() {
  push_new_pairs();
  while (!queue_.empty()) {
    Pair best = queue_.top();
    queue_.pop();
    const std::int64_t count = pairs_.at(key_of(best.left, best.right)).count;
    if (count == best.count) return best;
    best.count = count;
    queue_.push(best);
  }
  return {};
}

void PairCounts::join_in_word(std::int32_t index, const Pair& pair, std::int32_t joined) {
  Word& word = words_[static_cast<std::size_t>(index)];
  std::int32_t* symbol = symbols_.data() + word.begin;
  const auto lower = [&](std::int32_t left, std::int32_t right) {
    const auto found = pairs_.find(key_of(left, right));
    if (found != pairs_.end()) found->second.count -= word.count;
  };
  std::int32_t out = 0;
  for (std::int32_t i = 0; i < word.size; ++i, ++out) {
    const bool matches = i + 1 < word.size && symbol[i] == pair.left && symbol[i + 1] == pair.right;
    if (matches) {
      // Replaces the pairs on both sides; the next iteration may change the right one again.
      if (out > 0) {
        lower(symbol[out - 1], pair.left);
        add_pair(symbol[out - 1], joined, word.count, index);
      }
      if (i + 2 < word.size) {
        lower(pair.right, symbol[i + 2]);
        add_pair(joined, symbol[i + 2], word.count, index);
      }
      ++i;
    }
    symbol[out] = matches ? joined : symbol[i];
  }
  word.size = out;
}

namespace {

/// Maximum bytes of a counted word. Longer words are counted in parts.
constexpr std::size_t kLongestPart = 256;
/// Minimum count of a merged pair. A token for one occurrence would only memorize the corpus.
constexpr std::int64_t kSmallestCount = 2;

BpeModel model_of_bytes() {
  BpeModel model;
  for (const std::uint8_t byte : bytes_by_symbol()) {
    model.byte_ids[byte] = narrow<std::int32_t>(model.tokens.size());
    model.tokens.emplace_back(1, static_cast<char>(byte));
  }
  return model;
}

/// Appends a token per merge, at most `wanted`, and returns their number. The right token of each
/// pair begins with `prefix`; the new token leaves this prefix out.
std::int64_t learn_merges(BpeModel& model, PairCounts& pairs, std::int64_t wanted,
                          std::string_view prefix = "") {
  std::unordered_set<std::string> known(model.tokens.begin(), model.tokens.end());
  std::int64_t added = 0;
  while (added < wanted) {
    const PairCounts::Pair pair = pairs.take_most_frequent();
    if (pair.count < kSmallestCount) break;
    std::string bytes = model.tokens[static_cast<std::size_t>(pair.left)] +
                        model.tokens[static_cast<std::size_t>(pair.right)].substr(prefix.size());
    if (!known.insert(bytes).second) continue;  // another pair already has this spelling
    const auto joined = narrow<std::int32_t>(model.tokens.size());
    model.tokens.push_back(std::move(bytes));
    model.merges.push_back({pair.left, pair.right, joined});
    pairs.join(pair, joined);
    ++added;
  }
  return added;
}

const std::string kContinues = "##";

/// BERT's special tokens and the characters of words, as tokens of a WordPiece vocabulary.
class PieceAlphabet {
 public:
  void add(std::string_view word) {
    for_each_character(word, [&](CodePoint character, std::size_t begin, std::size_t) {
      all_.insert(character.value);
      if (begin > 0) later_.insert(character.value);
    });
  }
  std::vector<std::string> tokens() {
    std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (const bool is_later : {false, true})
      for (const char32_t character : is_later ? later_ : all_) {
        ids_[{is_later, character}] = narrow<std::int32_t>(tokens.size());
        append_utf8(character, tokens.emplace_back(is_later ? kContinues : ""));
      }
    return tokens;
  }
  std::vector<std::int32_t> symbols(std::string_view word) const {
    std::vector<std::int32_t> symbols;
    for_each_character(word, [&](CodePoint character, std::size_t begin, std::size_t) {
      symbols.push_back(ids_.at({begin > 0, character.value}));
    });
    return symbols;
  }

 private:
  std::set<char32_t> all_, later_;
  std::map<std::pair<bool, char32_t>, std::int32_t> ids_;
};

}  // namespace

/// Words partitioned by hash, so that threads can sum the counts of separate partitions.
struct BpeTrainer::Words {
  static constexpr std::size_t kParts = 16;
  std::array<WordCounts, kParts> parts;
  void add(std::string_view word) {
    const std::uint32_t hash = WordCounts::hash_of(word);
    parts[hash >> 28].add(word, hash, 1);
  }
  template <class F>
  void for_each(const F& f) {
    for (const WordCounts& part : parts) part.for_each(f);
  }
};

BpeTrainer::BpeTrainer(std::int64_t vocabulary_size, std::size_t word_bytes, TokenizerKind kind)
    : vocabulary_size_(vocabulary_size),
      word_bytes_(word_bytes),
      pieces_(kind == TokenizerKind::kWordPiece
                  ? std::make_unique<const TextPipeline>(word_piece_words())
                  : nullptr),
      words_(std::make_unique<Words>()) {
  if (vocabulary_size < kSmallestVocabulary || vocabulary_size > kLargestVocabulary) {
    throw UsageError(concat(
        "vocabulary size (--vocab-size) is ", vocabulary_size, "; want ", kSmallestVocabulary,
        pieces_ ? "" : concat(" (256 bytes and ", kEndOfText, ")"), " to ", kLargestVocabulary));
  }
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::span<const std::string_view> texts) {
  while (counters_.size() < static_cast<std::size_t>(threads())) {
    counters_.push_back(std::make_unique<Words>());
  }
  run_tasks(std::ssize(texts), [&](std::int64_t worker, std::int64_t i) {
    Words& counter = *counters_[static_cast<std::size_t>(worker)];
    const std::string_view text = texts[static_cast<std::size_t>(i)];
    const auto count = [&](std::string_view word) {
      while (!word.empty()) {
        const std::size_t bytes = whole_characters(word, kLongestPart);
        counter.add(word.substr(0, bytes));
        word.remove_prefix(bytes);
      }
    };
    if (pieces_ == nullptr) return WordSplitter().for_each_word(text, count);
    PiecePlace place;
    const std::string normalized = pieces_->normalized(well_formed_utf8(text), place);
    pieces_->for_each_word(normalized, place, count);
  });
  add_up();
}

/// Sums all words before dropping the rarest words, so that the result does not depend on the
/// number of threads.
void BpeTrainer::add_up() {
  constexpr std::size_t kParts = Words::kParts;
  std::array<std::int64_t, kParts> dropped{};
  run_tasks(kParts, [&](std::int64_t, std::int64_t i) {
    const auto place = static_cast<std::size_t>(i);
    WordCounts& words = words_->parts[place];
    for (const auto& counter : counters_) {
      words.add(counter->parts[place]);
      counter->parts[place].clear();
    }
    if (words.weight() <= word_bytes_ / kParts) return;
    dropped[place] = words.drop_rarest(word_bytes_ / kParts / 2);
  });
  for (const std::int64_t words : dropped) dropped_words_ += words;
}

BpeTrainingResult BpeTrainer::train() {
  counters_.clear();
  BpeTrainingResult result = pieces_ == nullptr ? train_bytes() : train_word_pieces();
  result.dropped_words = dropped_words_;
  return result;
}

BpeTrainingResult BpeTrainer::train_bytes() {
  BpeTrainingResult result;
  BpeModel model = model_of_bytes();
  PairCounts pairs;
  std::vector<std::int32_t> symbols;
  for (WordCounts& part : words_->parts) {
    const WordCounts words = std::move(part);
    words.for_each([&](std::string_view word, std::int64_t count) {
      symbols.clear();
      for (const char byte : word)
        symbols.push_back(model.byte_ids[static_cast<unsigned char>(byte)]);
      pairs.add_word(symbols, count);
    });
    result.distinct_words += words.words();
  }
  const std::int64_t wanted = vocabulary_size_ - kSmallestVocabulary;
  result.missing_merges = wanted - learn_merges(model, pairs, wanted);
  model.tokens.emplace_back(kEndOfText);
  result.tokenizer = make_bpe_tokenizer(model);
  return result;
}

BpeTrainingResult BpeTrainer::train_word_pieces() {
  BpeTrainingResult result;
  PieceAlphabet alphabet;
  words_->for_each([&](std::string_view word, std::int64_t) { alphabet.add(word); });
  BpeModel model;
  model.tokens = alphabet.tokens();
  const std::int64_t wanted = vocabulary_size_ - std::ssize(model.tokens);
  if (wanted < 0)
    throw UsageError(concat("vocabulary size (--vocab-size) is ", vocabulary_size_,
                            "; want at least ", model.tokens.size(),
                            ", the special tokens and the characters of the text"));
  PairCounts pairs;
  words_->for_each([&](std::string_view word, std::int64_t count) {
    pairs.add_word(alphabet.symbols(word), count);
    ++result.distinct_words;
  });
  result.missing_merges = wanted - learn_merges(model, pairs, wanted, kContinues);
  result.tokenizer = make_word_piece_tokenizer(model.tokens);
  return result;
}

}  // namespace hybrid_trainer
