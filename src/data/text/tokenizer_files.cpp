#include "src/data/text/tokenizer_files.h"

#include <algorithm>
#include <charconv>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/character_tokenizer.h"
#include "src/data/text/token_texts.h"
#include "src/data/text/tokenizer_steps.h"
#include "src/files/foreign_files.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

/// Reads a special token, which is a text or an object with the text as its content.
ListedToken special_token(const JsonPlace& place) {
  ListedToken listed;
  if (place.value().is_object()) {
    listed = listed_token(place);
    listed.normalized = place.flag("normalized");
  } else {
    listed.token.content = place.text();
    listed.place = place.path();
  }
  listed.token.special = true;
  return listed;
}

std::vector<ListedToken> added_tokens_of(const JsonPlace& place) {
  std::vector<ListedToken> tokens;
  for (const auto& [key, value] : place.object()) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > INT32_MAX)
      place.fail("has the key \"", key, "\"; want token ids");
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

std::optional<JsonPlace> first_of(const Places& files, const char* key) {
  for (const JsonPlace& file : files)
    if (auto found = file.find(key)) return found;
  return {};
}

/// Special tokens that files name, in the order in which transformers 5.24 adds them.
class NamedTokens {
 public:
  /// The last of `files` is tokenizer_config.json; special_tokens_map.json may precede it.
  explicit NamedTokens(const Places& files) : files_(files), config_(files.back()) {}

  std::vector<ListedToken> run() && {
    for (const char* role : kRoles)
      if (const auto found = first_of(files_, role)) tokens_.push_back(special_token(*found));
    // Other names, such as image_token, in this order: objects of the config, members of the map,
    // texts of the config.
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

  /// Adds the elements of a member if the member has this kind. Returns whether there are any.
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

/// Reads added_tokens.json: {"<pad>": 50257, …}. Tokens that are among `named` are special.
std::vector<ListedToken> older_added_tokens(const FolderFiles& folder,
                                            const std::vector<ListedToken>& named) {
  constexpr const char* kFile = "added_tokens.json";
  std::vector<ListedToken> tokens;
  if (!folder.contains(kFile)) return tokens;
  const json::value root = read_json_object(folder, kFile);
  const JsonPlace place(root, (folder.path() / kFile).string());
  std::set<std::string_view> special;
  for (const ListedToken& one : named) special.insert(one.token.content);
  for (const auto& [key, value] : place.object()) {
    const bool is_special = special.contains(std::string_view(key));
    ListedToken listed;
    listed.token.content = key;
    listed.token.special = is_special;
    listed.normalized = !is_special;
    listed.id = place.at(key).count();
    listed.place = concat(kFile, ": ", std::string_view(key));
    tokens.push_back(std::move(listed));
  }
  std::ranges::sort(tokens, {}, &ListedToken::id);
  return tokens;
}

/// Throws DataError for unsupported keys that change tokens. Returns the unknown keys.
std::vector<std::string> unknown_keys_of(const json::object& config, const std::string& file) {
  const UnreadKeys unread =
      sort_unread_keys(config, ForeignFile::kTokenizerConfig,
                       {"add_prefix_space", "added_tokens_decoder", "chat_template",
                        "strip_accents", "tokenize_chinese_chars"});
  if (!unread.problems.empty()) throw DataError(concat(file, ": ", unread.problems.front()));
  return unread.unknown;
}

json::value settings_in(const FolderFiles& folder, const char* name) {
  return folder.contains(name) ? read_json_object(folder, name) : json::object{};
}

constexpr std::size_t kLargestFile = std::size_t{256} << 20;

/// Returns the tokenizer.json of a byte-level BPE that splits text into words as GPT-2 does.
/// `end_of_text`: id of the special token "<|endoftext|>", if there is one.
json::object gpt2_pipeline(json::object vocab, json::array merges,
                           std::optional<std::int64_t> end_of_text, bool adds_prefix_space) {
  TokenizerJson file{.pre_tokenizer = byte_level(adds_prefix_space, true),
                     .decoder = byte_level(adds_prefix_space, true),
                     .model = {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", nullptr},
                               {"continuing_subword_prefix", ""},
                               {"end_of_word_suffix", ""},
                               {"fuse_unk", false},
                               {"byte_fallback", false},
                               {"vocab", std::move(vocab)},
                               {"merges", std::move(merges)}}};
  if (end_of_text) file.added_tokens.push_back(added_token(*end_of_text, kEndOfText, true));
  return std::move(file).root();
}

std::string file_text(const json::value& value) { return json::serialize(value) + "\n"; }

/// Returns the lines of a text without their ends, LF or CRLF.
std::vector<std::string_view> text_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

json::array merges_of_lines(const std::string& text) {
  json::array merges;
  bool is_first = true;
  for (const std::string_view line : text_lines(text)) {
    const bool is_version = std::exchange(is_first, false) && line.starts_with("#version");
    if (!line.empty() && !is_version) merges.emplace_back(line);
  }
  return merges;
}

constexpr const char *kTokenizerFile = "tokenizer.json", *kWordFile = "vocab.json",
                     *kMergeFile = "merges.txt", *kPieceFile = "vocab.txt",
                     *kConfigFile = "tokenizer_config.json", *kMapFile = "special_tokens_map.json";

/// Returns whether the folder's sentence-transformers settings lower the case of texts.
bool lowers_case(const FolderFiles& folder) {
  for (const char* name : kSentenceFiles) {
    if (!folder.contains(name)) continue;
    const json::value settings = read_json_object(folder, name);
    return JsonPlace(settings, (folder.path() / name).string()).flag("do_lower_case");
  }
  return false;
}

bool is_lowercase(const json::value& normalizer) {
  const json::object* const object = normalizer.if_object();
  const json::value* const type = object == nullptr ? nullptr : object->if_contains("type");
  return type != nullptr && *type == "Lowercase";
}

void add_lowercase(json::object& root) {
  if (root.contains("type")) return;  // a tokenizer of bytes or characters
  const json::value before = root["normalizer"];
  json::array steps{json::object{{"type", "Lowercase"}}};
  if (const json::object* const object = before.if_object()) {
    const json::value* const all = object->if_contains("normalizers");
    const json::array inner =
        all != nullptr && all->is_array() ? all->get_array() : json::array{before};
    if (std::ranges::any_of(inner, is_lowercase)) return;
    steps.insert(steps.end(), inner.begin(), inner.end());
  }
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

json::object bert_normalizer(const JsonPlace& settings) {
  const auto strips = settings.find("strip_accents");
  return {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", settings.flag("tokenize_chinese_chars", true)},
          {"strip_accents", strips ? json::value(strips->flag()) : nullptr},
          {"lowercase", settings.flag("do_lower_case", true)}};
}

/// Returns whether transformers opens the folder's tokenizer as BertTokenizer.
bool is_of_bert(const FolderFiles& folder) {
  const json::value settings = settings_in(folder, kConfigFile);
  if (const auto name =
          JsonPlace(settings, (folder.path() / kConfigFile).string()).find("tokenizer_class"))
    return name->text().starts_with("BertTokenizer") ||
           name->text().starts_with("DistilBertTokenizer");
  if (!folder.contains("config.json")) return false;
  const json::value config = read_json_object(folder, "config.json");
  const json::value* const type = config.get_object().if_contains("model_type");
  return type != nullptr && (*type == "bert" || *type == "distilbert");
}

/// Applies the settings of other files to the normalizer of tokenizer.json: BertTokenizer sets its
/// options from tokenizer_config.json, and sentence-transformers may lower the case. Returns whether
/// the normalizer changes.
bool adapt_normalizer(const FolderFiles& folder, json::object& root) {
  bool is_changed = false;
  json::value* const normalizer = root.if_contains("normalizer");
  json::object* const options = normalizer == nullptr ? nullptr : normalizer->if_object();
  const json::value* const type = options == nullptr ? nullptr : options->if_contains("type");
  if (type != nullptr && *type == "BertNormalizer" && is_of_bert(folder)) {
    const json::value config = settings_in(folder, kConfigFile);
    json::object taken = bert_normalizer({config, (folder.path() / kConfigFile).string()});
    if (options->contains("clean_text")) taken["clean_text"] = options->at("clean_text");
    is_changed = *options != taken;
    *options = std::move(taken);
  }
  if (!lowers_case(folder)) return is_changed;
  add_lowercase(root);
  return true;
}

/// Loads GPT-2's files. A token "<|endoftext|>" is special.
std::unique_ptr<Tokenizer> load_gpt2_files(const FolderFiles& folder) {
  if (!folder.contains(kWordFile) || !folder.contains(kMergeFile))
    throw MissingInput(missing_tokenizer_message(folder.path()));
  const TokenizerSettings settings = read_tokenizer_settings(folder);
  json::object tokens = read_json_object(folder, kWordFile);
  std::optional<std::int64_t> end_of_text;
  if (const json::value* id = tokens.if_contains(kEndOfText); id != nullptr && id->is_int64())
    end_of_text = id->get_int64();
  const json::value root =
      gpt2_pipeline(std::move(tokens), merges_of_lines(folder.text(kMergeFile, kLargestFile)),
                    end_of_text, settings.adds_prefix_space.value_or(false));
  TokenizerFiles files = read_tokenizer_files(folder);
  files[kTokenizerFile] = file_text(root);
  return tokenizer_of_json(root, concat((folder.path() / kWordFile).string(), " and ", kMergeFile),
                           settings, std::move(files));
}

/// Returns the tokens of a vocab.txt, one per line; a repeated token's last line is used.
json::object ids_of_lines(const std::string& text) {
  json::object vocab;
  std::int64_t id = 0;
  for (const std::string_view line : text_lines(text)) vocab[line] = id++;
  return vocab;
}

/// Returns the text of the special token for this role, from the first of `files` that names one.
std::string role_of(const Places& files, const char* role, const char* otherwise) {
  const auto found = first_of(files, role);
  return found ? special_token(*found).token.content : otherwise;
}

/// Loads BERT's vocab.txt with the settings of tokenizer_config.json.
std::unique_ptr<Tokenizer> load_piece_file(const FolderFiles& folder) {
  const json::value config = settings_in(folder, kConfigFile), map = settings_in(folder, kMapFile);
  const json::value root =
      word_piece_json(folder.text(kPieceFile, kLargestFile), config, map, folder.path());
  return tokenizer_of_json(root, (folder.path() / kPieceFile).string(),
                           read_tokenizer_settings(folder), read_tokenizer_files(folder));
}

}  // namespace

json::object word_piece_json(const std::string& lines, const json::value& config,
                             const json::value& map, const fs::path& folder) {
  const std::string file = (folder / kPieceFile).string();
  const JsonPlace place(config, (folder / kConfigFile).string());
  const Places files{place, JsonPlace(map, (folder / kMapFile).string())};
  json::object vocab = ids_of_lines(lines);
  const auto named = [&](const char* role, const char* otherwise) {
    const std::string token = role_of(files, role, otherwise);
    const json::value* id = vocab.if_contains(token);
    if (id == nullptr)
      throw DataError(concat(file, ": has no line \"", token, "\", the ", role, "; want one"));
    return std::pair(token, id->get_int64());
  };
  const auto cls = named("cls_token", "[CLS]"), sep = named("sep_token", "[SEP]");
  const std::string unknown = named("unk_token", "[UNK]").first;
  TokenizerJson root;
  std::set<std::string> special{cls.first, sep.first, unknown};
  for (const auto& [role, name] : {std::pair("pad_token", "[PAD]"), {"mask_token", "[MASK]"}})
    if (const auto token = role_of(files, role, name); vocab.contains(token)) special.insert(token);
  for (const std::string& token : special)
    root.added_tokens.push_back(added_token(vocab.at(token).get_int64(), token, true));
  root.normalizer = bert_normalizer(place);
  root.pre_tokenizer = {{"type", "BertPreTokenizer"}};
  root.post_processor = {{"type", "BertProcessing"},
                         {"sep", {sep.first, sep.second}},
                         {"cls", {cls.first, cls.second}}};
  root.decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  root.model = {{"type", "WordPiece"},
                {"unk_token", unknown},
                {"continuing_subword_prefix", "##"},
                {"max_input_chars_per_word", 100},
                {"vocab", std::move(vocab)}};
  return std::move(root).root();
}

json::object byte_level(bool adds_prefix_space, bool splits_words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", adds_prefix_space},
          {"trim_offsets", true},
          {"use_regex", splits_words}};
}

json::object added_token(std::int64_t id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

json::object TokenizerJson::root() && {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added_tokens)},
          {"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"post_processor", std::move(post_processor)},
          {"decoder", std::move(decoder)},
          {"model", std::move(model)}};
}

ListedToken listed_token(const JsonPlace& place) {
  place.know(
      {"__type", "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  const bool special = place.flag("special");
  return {.token = AddedToken{.content = place.at("content").text(),
                              .single_word = place.flag("single_word"),
                              .lstrip = place.flag("lstrip"),
                              .rstrip = place.flag("rstrip"),
                              .special = special},
          .normalized = place.flag("normalized", !special),
          .id = {},
          .place = place.path()};
}

TokenizerSettings read_tokenizer_settings(const FolderFiles& folder) {
  TokenizerSettings settings;
  const fs::path config_file = folder.path() / kConfigFile, map_file = folder.path() / kMapFile;
  const json::value config = settings_in(folder, kConfigFile), map = settings_in(folder, kMapFile);
  const JsonPlace config_place(config, config_file.string()), map_place(map, map_file.string());
  std::vector<std::string> unknown = unknown_keys_of(config.get_object(), config_file.string());
  if (const auto found = config_place.find("add_prefix_space"))
    settings.adds_prefix_space = found->flag();
  Places files{config_place};
  if (const auto decoder = config_place.find("added_tokens_decoder")) {
    settings.added_tokens = added_tokens_of(*decoder);
    settings.named_tokens = NamedTokens(files).run();
    files.push_back(map_place);  // used only for its eos_token
  } else {
    files.insert(files.begin(), map_place);
    const auto named = NamedTokens(files).run();
    settings.named_tokens = older_added_tokens(folder, named);
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

TokenizerFiles read_tokenizer_files(const FolderFiles& folder) {
  TokenizerFiles files;
  for (const char* name : kTokenizerFiles)
    if (folder.contains(name)) files[name] = folder.bytes(name, kLargestFile);
  for (const std::string& name : additional_template_files(folder.path().string()))
    files[name] = folder.bytes(name, kLargestFile);
  if (!files.contains(kTokenizerFile) || !(lowers_case(folder) || is_of_bert(folder))) return files;
  json::value root = read_json_object(folder, kTokenizerFile);
  if (adapt_normalizer(folder, root.get_object())) files[kTokenizerFile] = file_text(root);
  return files;
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeModel& model) {
  const ByteSymbolCoder coder;
  std::vector<std::string> spelling;
  for (const std::string& token : model.tokens) spelling.push_back(coder.to_symbols(token));
  spelling.back() = model.tokens.back();
  json::object vocab;
  for (std::size_t id = 0; id < spelling.size(); ++id)
    vocab.emplace(spelling[id], static_cast<std::int64_t>(id));
  json::array merges;
  std::string lines = "#version: 0.2\n";
  for (const BpeMerge& merge : model.merges) {
    const std::string line = concat(spelling[static_cast<std::size_t>(merge.left)], ' ',
                                    spelling[static_cast<std::size_t>(merge.right)]);
    merges.emplace_back(line);
    lines += line + "\n";
  }
  TokenizerFiles files{{"vocab.json", file_text(vocab)}, {"merges.txt", lines}};
  const json::value root = gpt2_pipeline(std::move(vocab), std::move(merges),
                                         static_cast<std::int64_t>(model.tokens.size()) - 1, false);
  files["tokenizer.json"] = file_text(root);
  return tokenizer_of_json(root, "the trained tokenizer", {}, std::move(files));
}

std::unique_ptr<Tokenizer> make_word_piece_tokenizer(const std::vector<std::string>& tokens) {
  std::string lines;
  for (const std::string& token : tokens) lines += token + "\n";
  const json::value root = word_piece_json(lines, json::object(), json::object(), "");
  return tokenizer_of_json(root, "the trained tokenizer", {},
                           {{kTokenizerFile, file_text(root)}, {kPieceFile, lines}});
}

TextPipeline word_piece_words() {
  const json::value root =
      word_piece_json("[UNK]\n[CLS]\n[SEP]\n", json::object(), json::object(), "");
  const JsonPlace place(root, kTokenizerFile);
  return {read_normalizer(place.find("normalizer")),
          read_pre_tokenizer(place.find("pre_tokenizer"), {}).steps};
}

std::unique_ptr<Tokenizer> load_tokenizer(const FolderFiles& folder, const std::string& given) {
  const std::string name = !given.empty()                    ? given
                           : folder.contains(kTokenizerFile) ? kTokenizerFile
                           : folder.contains(kWordFile)      ? kWordFile
                           : folder.contains(kPieceFile)     ? kPieceFile
                                                             : kWordFile;
  if (name != kTokenizerFile && lowers_case(folder))
    throw DataError(concat(folder.path().string(), ": do_lower_case in its sentence-transformers ",
                           "settings needs a tokenizer.json; save the tokenizer again with ",
                           "transformers"));
  if (name == kPieceFile) return load_piece_file(folder);
  if (name == kWordFile || name == kMergeFile) return load_gpt2_files(folder);
  json::value root = read_json_object(folder, name);
  const JsonPlace place(root, (folder.path() / name).string());
  if (!place.object().contains("type")) {
    TokenizerFiles files = read_tokenizer_files(folder);
    if (!adapt_normalizer(folder, root.get_object()))
      files[kTokenizerFile] = folder.bytes(name, kLargestFile);
    return tokenizer_of_json(root, place.file(), read_tokenizer_settings(folder), std::move(files));
  }
  const std::string type = place.at("type").text();
  if (type == "bytes") return make_byte_tokenizer();
  if (type == "characters") return load_character_tokenizer(place);
  throw DataError(
      concat(place.file(), ": tokenizer type \"", type,
             "\" is not supported; want bytes, characters, or a Hugging Face tokenizer.json"));
}

}  // namespace hybrid_trainer
