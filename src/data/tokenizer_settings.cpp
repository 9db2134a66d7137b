#include "src/data/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "hybrid_trainer/files/foreign_keys.h"
#include "src/data/json_file.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

bool flag_or(const JsonPlace& place, const char* key, bool otherwise) {
  const auto found = place.find(key);
  return found ? found->flag() : otherwise;
}

/// A token's text, or an object with its content.
ListedToken special_token(const JsonPlace& place) {
  ListedToken listed;
  if (place.value().is_object()) {
    listed = listed_token(place);
    listed.normalized = flag_or(place, "normalized", false);
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

constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

bool is_role(std::string_view key) { return std::ranges::find(kRoles, key) != std::end(kRoles); }

using Places = std::vector<JsonPlace>;

/// A member of the first of the files that has it.
std::optional<JsonPlace> first_of(const Places& files, const char* key) {
  for (const JsonPlace& file : files)
    if (auto found = file.find(key)) return found;
  return {};
}

/// Special tokens that files name, in the order in which transformers 5.24 adds them.
class NamedTokens {
 public:
  /// Of `files` the last one is tokenizer_config.json; special_tokens_map.json may be before it.
  explicit NamedTokens(const Places& files) : files_(files), config_(files.back()) {}

  std::vector<ListedToken> run() && {
    for (const char* role : kRoles)
      if (const auto found = first_of(files_, role)) tokens_.push_back(special_token(*found));
    // image_token and the like: objects of the config, what the map has, texts of the config.
    add_other_names(config_, {.objects = true});
    if (&files_.front() != &config_)
      add_other_names(files_.front(), {.objects = true, .texts = true});
    const bool has_names = add_other_names(config_, {.texts = true});
    const bool has_more = add_all(config_, "extra_special_tokens", &json::value::is_object);
    if (!has_names && !has_more)
      add_all(config_, "model_specific_special_tokens", &json::value::is_object);
    add_all(files_.front(), "extra_special_tokens", &json::value::is_object);
    add_lists();
    return std::move(tokens_);
  }

 private:
  using IsKind = bool (json::value::*)() const noexcept;
  struct Kinds {
    bool objects = false, texts = false;
  };

  bool add_other_names(const JsonPlace& file, Kinds kinds) {
    const std::size_t before = tokens_.size();
    for (const auto& [key, value] : file.object()) {
      const bool is_object = value.is_object() && value.get_object().contains("content");
      const bool is_wanted = is_object ? kinds.objects : kinds.texts && value.is_string();
      if (is_wanted && key.ends_with("_token") && !is_role(key))
        tokens_.push_back(special_token(file.at(key)));
    }
    return tokens_.size() > before;
  }

  /// The elements of a member, where it is of that kind.
  bool add_all(const JsonPlace& file, const char* key, IsKind is_kind) {
    const auto place = file.find(key);
    if (!place || !(place->value().*is_kind)()) return false;
    const std::size_t before = tokens_.size();
    if (place->value().is_array()) {
      for (const JsonPlace& item : place->items()) tokens_.push_back(special_token(item));
    } else {
      for (const auto& [name, value] : place->object())
        tokens_.push_back(special_token(place->at(name)));
    }
    return tokens_.size() > before;
  }

  void add_lists() {
    const JsonPlace& first = files_.front();
    bool has_any = add_all(config_, "extra_special_tokens", &json::value::is_array) ||
                   add_all(config_, "additional_special_tokens", &json::value::is_array);
    if (&first == &config_) return;
    has_any = add_all(first, "extra_special_tokens", &json::value::is_array) || has_any;
    if (!has_any) add_all(first, "additional_special_tokens", &json::value::is_array);
  }

  const Places& files_;
  const JsonPlace& config_;
  std::vector<ListedToken> tokens_;
};

/// added_tokens.json: {"<pad>": 50257, …}. Those that are among `named` are special.
std::vector<ListedToken> older_added_tokens(const fs::path& file,
                                            const std::vector<ListedToken>& named) {
  std::vector<ListedToken> tokens;
  if (!fs::exists(file)) return tokens;
  const json::value root = read_json_object(file);
  const JsonPlace place(root, file.string());
  std::set<std::string_view> special;
  for (const ListedToken& one : named) special.insert(one.token.content);
  for (const auto& [key, value] : place.object()) {
    const bool is_special = special.contains(std::string_view(key));
    ListedToken listed;
    listed.token.content = key;
    listed.token.special = is_special;
    listed.normalized = !is_special;
    listed.id = place.at(key).count();
    listed.place = concat("added_tokens.json: ", std::string_view(key));
    tokens.push_back(std::move(listed));
  }
  std::ranges::sort(tokens, {}, &ListedToken::id);
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

json::value settings_in(const fs::path& file) {
  return fs::exists(file) ? read_json_object(file) : json::object{};
}

}  // namespace

ListedToken listed_token(const JsonPlace& place) {
  place.know(
      {"__type", "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  const bool special = flag_or(place, "special", false);
  return {.token = AddedToken{.content = place.at("content").text(),
                              .single_word = flag_or(place, "single_word", false),
                              .lstrip = flag_or(place, "lstrip", false),
                              .rstrip = flag_or(place, "rstrip", false),
                              .special = special},
          .normalized = flag_or(place, "normalized", !special),
          .id = {},
          .place = place.path()};
}

TokenizerSettings read_tokenizer_settings(const fs::path& folder) {
  TokenizerSettings settings;
  const fs::path config_file = folder / "tokenizer_config.json";
  const fs::path map_file = folder / "special_tokens_map.json";
  const json::value config = settings_in(config_file), map = settings_in(map_file);
  const JsonPlace config_place(config, config_file.string()), map_place(map, map_file.string());
  std::vector<std::string> unknown = unknown_keys_of(config.get_object(), config_file.string());
  if (const auto found = config_place.find("add_prefix_space"))
    settings.adds_prefix_space = found->flag();
  Places files{config_place};
  if (const auto decoder = config_place.find("added_tokens_decoder")) {
    settings.added_tokens = added_tokens_of(*decoder);
    settings.named_tokens = NamedTokens(files).run();
    files.push_back(map_place);  // for its eos_token alone
  } else {
    files.insert(files.begin(), map_place);
    const auto named = NamedTokens(files).run();
    settings.named_tokens = older_added_tokens(folder / "added_tokens.json", named);
    settings.named_tokens.insert(settings.named_tokens.end(), named.begin(), named.end());
  }
  if (const auto found = first_of(files, "eos_token")) {
    settings.end_of_text = special_token(*found).token.content;
    settings.end_of_text_file = found->file();
  }
  for (std::string& path : config_place.unknown()) unknown.push_back(std::move(path));
  warn_of_unknown_keys(config_file.string(), unknown);
  warn_of_unknown_keys(map_file.string(), map_place.unknown());
  return settings;
}

}  // namespace hybrid_trainer
