#include "src/data/word_model.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {

namespace {

constexpr std::int32_t kNoId = BpeVocabulary::kNoId;
constexpr const char* kLeavesOut =
    "leaves out characters of the text that have no token, as Hugging Face's tokenizers does: it "
    "has no unk_token";

/// The character at `place`, or the byte where there is none.
std::string_view character_at(std::string_view text, std::size_t place) {
  return text.substr(place, std::max<std::size_t>(decode_utf8(text, place).bytes, 1));
}

std::string_view final_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && is_continuation(text[begin])) --begin;
  const std::string_view last = text.substr(begin);
  return decode_utf8(last, 0).bytes == last.size() ? last : text.substr(text.size() - 1);
}

[[noreturn]] void throw_no_token(std::string_view character, const std::string& unknown) {
  std::string bytes;
  for (const char byte : character) {
    char hex[8];
    std::snprintf(hex, sizeof(hex), " %02X", static_cast<unsigned char>(byte));
    bytes += hex;
  }
  throw DataError(concat("the character of the bytes", bytes,
                         " has no token, and model.unk_token of tokenizer.json, \"", unknown,
                         "\", is not in model.vocab"));
}

}  // namespace

MergeTable::MergeTable(const std::vector<BpeMerge>& merges)
    : mask_(std::bit_ceil(2 * merges.size() + 2) - 1), slots_(mask_ + 1) {
  std::int32_t rank = 0;
  for (const BpeMerge& merge : merges) {
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t i = slot_of(key);
    while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
    slots_[i] = {key, {rank, merge.joined}};
    ++rank;
  }
}

WordModel::WordModel(BpeVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), merges_(vocabulary_.merges), borders_(borders()) {
  if (!vocabulary_.by_bytes) divides_ = bytes_stand_alone();
  if (!vocabulary_.ignores_merges) return;
  for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id)
    words_.emplace(vocabulary_.tokens[id], narrow<std::int32_t>(id));
}

/// Whether all bytes have tokens, or none has, and no merge has a part in them.
bool WordModel::bytes_stand_alone() const {
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
    if (token(merge.left).empty() || token(merge.right).empty()) continue;  // nothing spells these
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
  return divides_ && left != kNoId && right != kNoId &&
         borders_.find(left, right).rank == MergeTable::kNone;
}

void WordModel::append_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  bool is_unknown = false;  // whether an unknown token is still to be appended
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
      // Before an unknown token that is still to be appended, as tokenizers does.
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

}  // namespace hybrid_trainer
