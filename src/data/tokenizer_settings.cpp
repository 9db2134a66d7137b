#include "tokenizer_settings.h"

#include <algorithm>
#include <charconv>

#include "hybrid_trainer/files/foreign_keys.h"
#include "json_file.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

bool flag_or(const JsonPlace& place, const char* key, bool otherwise) {
  const auto found = place.find(key);
  return found ? found->flag() : otherwise;
}

/// A token's text, or an object with its content.
ListedToken special_token(const JsonPlace& place) {
  ListedToken listed;
  if (place.value().is_object()) {
    listed = listed_token(place);
  } else {
    listed.token.content = place.text();
    listed.place = place.path();
  }
  listed.token.special = true;
  return listed;
}

/// added_tokens_decoder: {"261": {"content": …}, …}.
std::vector<ListedToken> added_tokens_of(const JsonPlace& place) {
  std::vector<ListedToken> tokens;
  for (const auto& [key, value] : place.object()) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > INT32_MAX)
      place.fail("has the key \"", key, "\"; want ids of tokens");
    tokens.push_back(listed_token(place.at(key)));
    tokens.back().id = id;
  }
  std::ranges::sort(tokens, {}, &ListedToken::id);
  return tokens;
}

std::vector<ListedToken> special_tokens_of(const JsonPlace& root) {
  std::vector<ListedToken> tokens;
  const auto add_all = [&](const JsonPlace& place) {
    if (place.value().is_array()) {
      for (const JsonPlace& item : place.items()) tokens.push_back(special_token(item));
    } else {
      for (const auto& [name, value] : place.object())
        tokens.push_back(special_token(place.at(name)));
    }
  };
  for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (const auto found = root.find(role)) tokens.push_back(special_token(*found));
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
    if (const auto found = root.find(key)) add_all(*found);
  return tokens;
}

/// Refuses keys that change tokens; those that nobody knows are returned.
std::vector<std::string> unknown_keys_of(const json::object& config, const std::string& file) {
  const UnreadKeys unread =
      sort_unread_keys(config, ForeignFile::kTokenizerConfig,
                       {"add_prefix_space", "added_tokens_decoder", "chat_template"});
  if (!unread.problems.empty()) throw DataError(concat(file, ": ", unread.problems.front()));
  return unread.unknown;
}

/// The eos_token that special_tokens_map.json names.
std::optional<std::string> mapped_end_of_text(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  const json::value map = read_json_object(file);
  const auto found = JsonPlace(map, file.string()).find("eos_token");
  return found ? std::optional(special_token(*found).token.content) : std::nullopt;
}

}  // namespace

ListedToken listed_token(const JsonPlace& place) {
  place.know(
      {"__type", "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  const bool special = flag_or(place, "special", false);
  return {.token = {.content = place.at("content").text(),
                    .single_word = flag_or(place, "single_word", false),
                    .lstrip = flag_or(place, "lstrip", false),
                    .rstrip = flag_or(place, "rstrip", false),
                    .special = special},
          .normalized = flag_or(place, "normalized", !special),
          .id = {},
          .place = place.path()};
}

TokenizerSettings read_tokenizer_settings(const std::filesystem::path& folder) {
  TokenizerSettings settings;
  settings.end_of_text = mapped_end_of_text(folder / "special_tokens_map.json");
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return settings;
  const json::value config = read_json_object(file);
  std::vector<std::string> unknown = unknown_keys_of(config.get_object(), file.string());
  const JsonPlace root(config, file.string());
  if (const auto found = root.find("add_prefix_space")) settings.adds_prefix_space = found->flag();
  if (const auto found = root.find("eos_token"))
    settings.end_of_text = special_token(*found).token.content;
  if (const auto found = root.find("added_tokens_decoder"))
    settings.added_tokens = added_tokens_of(*found);
  settings.special_tokens = special_tokens_of(root);
  for (std::string& path : root.unknown()) unknown.push_back(std::move(path));
  warn_of_unknown_keys(file.string(), unknown);
  return settings;
}

}  // namespace hybrid_trainer
