#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/core/sha256.h"
#include "src/data/text/tokenizer_files.h"
#include "src/data/text/word_splitter.h"
#include "src/files/text.h"
#include "src/gguf/gguf_file.h"
#include "src/gguf/gguf_special_tokens.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

constexpr const char* kPrefix = "tokenizer.ggml.";
constexpr const char *kPieceStart = "▁", *kPieceContinuation = "##";

/// Values of tokenizer.ggml.token_type.
struct TokenType {
  static constexpr std::int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4,
                                kUnused = 5;
};

/// Settings of a byte-level BPE that llama.cpp identifies by one name.
struct NamedWords {
  std::string_view name;
  WordPattern pattern;
  bool splits_digits = false, ignores_merges = false, adds_bos = false, composes = false;
};

const NamedWords& words_of(const GgufFile& file) {
  using enum WordPattern;
  // Source: llama.cpp, src/llama-vocab.cpp.
  static constexpr NamedWords kNamedWords[] = {
      {"gpt-2", kGpt2},
      {"phi-2", kGpt2},
      {"mpt", kGpt2},
      {"olmo", kGpt2},
      {"roberta-bpe", kGpt2},
      {.name = "modern-bert", .pattern = kGpt2, .composes = true},
      {.name = "smollm", .pattern = kGpt2, .splits_digits = true},
      {.name = "starcoder", .pattern = kGpt2, .splits_digits = true},
      {.name = "refact", .pattern = kGpt2, .splits_digits = true},
      {.name = "llama-bpe", .pattern = kLlama3, .ignores_merges = true, .adds_bos = true},
      {.name = "llama3", .pattern = kLlama3, .ignores_merges = true, .adds_bos = true},
      {"smaug-bpe", kLlama3},
      {.name = "qwen2", .pattern = kQwen2, .composes = true},
      {.name = "deepseek-r1-qwen", .pattern = kQwen2, .composes = true},
      {.name = "qwen35", .pattern = kQwen35, .composes = true},
      {.name = "tekken", .pattern = kTekken, .ignores_merges = true, .adds_bos = true},
      {"gpt-4o", kGpt4o}};
  const std::string name = file.text(concat(kPrefix, "pre")).value_or("");
  const auto* found = std::ranges::find(kNamedWords, name, &NamedWords::name);
  if (found != std::end(kNamedWords)) return *found;
  std::vector<std::string> names;
  for (const NamedWords& one : kNamedWords) names.emplace_back(one.name);
  throw DataError(concat(file.path().string(), ": its tokenizer splits words by the rule \"", name,
                         "\" (tokenizer.ggml.pre), but only these are supported: ", join(names),
                         name.empty() || name == "default"
                             ? "; the file was converted before llama.cpp recorded the rule, so "
                               "convert the model again"
                             : "; use the model's Hugging Face folder instead"));
}

json::object sequence(const char* key, json::array steps) {
  return {{"type", "Sequence"}, {key, std::move(steps)}};
}

json::object replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", json::object{{"String", from}}}, {"content", to}};
}

json::object pre_tokenizer_of(const NamedWords& words) {
  if (words.pattern != WordPattern::kGpt2)
    return sequence(
        "pretokenizers",
        json::array{
            json::object{{"type", "Split"},
                         {"pattern", json::object{{"Regex", word_expression(words.pattern)}}},
                         {"behavior", "Isolated"},
                         {"invert", false}},
            byte_level(false, false)});
  if (!words.splits_digits) return byte_level(false, true);
  return sequence("pretokenizers",
                  json::array{json::object{{"type", "Digits"}, {"individual_digits", true}},
                              byte_level(false, true)});
}

/// Derives merges from scores: all splits of each token into two, in descending order of scores.
class ScoredMerges {
 public:
  ScoredMerges(const std::vector<std::string>& tokens, const std::vector<std::int64_t>& uses,
               const std::vector<double>& scores)
      : tokens_(tokens) {
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (uses[id] != TokenType::kNormal && uses[id] != TokenType::kUserDefined) continue;
      check(id, tokens[id], scores[id]);
      ids_.emplace(tokens[id], id);
    }
    order_.resize(tokens.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_,
                             [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  }
  json::array all() const {
    json::array merges;
    for (const std::size_t id : order_)
      if (const auto found = ids_.find(tokens_[id]); found != ids_.end() && found->second == id)
        add(tokens_[id], merges);
    return merges;
  }

 private:
  static void check(std::size_t id, const std::string& token, double score) {
    constexpr std::size_t kLongest = 512;  // longest token to split, because all splits are tried
    if (token.size() > kLongest)
      throw DataError(concat(kPrefix, "tokens: token ", id, " has ", token.size(),
                             " bytes; want at most ", kLongest));
    if (std::isnan(score))
      throw DataError(concat(kPrefix, "scores: the score of token ", id, " is NaN"));
  }
  void add(std::string_view token, json::array& merges) const {
    for (std::size_t cut = decode_utf8(token, 0).bytes; cut > 0 && cut < token.size();) {
      const std::string_view left = token.substr(0, cut), right = token.substr(cut);
      if (ids_.contains(left) && ids_.contains(right))
        merges.push_back(json::array{json::string(left), json::string(right)});
      const std::size_t bytes = decode_utf8(token, cut).bytes;
      if (bytes == 0) return;
      cut += bytes;
    }
  }
  const std::vector<std::string>& tokens_;
  std::unordered_map<std::string_view, std::size_t> ids_;
  std::vector<std::size_t> order_;  // sorted by descending score, then ascending id
};

class GgufTokenizer {
 public:
  explicit GgufTokenizer(const GgufFile& file)
      : file_(file),
        special_(read_gguf_special_tokens(file)),
        kind_(file.text(concat(kPrefix, "model")).value_or("")),
        tokens_(file.texts(concat(kPrefix, "tokens"))),
        uses_(file.counts(concat(kPrefix, "token_type"))) {
    if (tokens_.empty())
      throw MissingInput(concat(path(), ": has no tokenizer (tokenizer.ggml.tokens)"));
    if (uses_.empty()) uses_.assign(tokens_.size(), TokenType::kNormal);
    check_length(uses_.size(), "token_type");
    constexpr std::array kKinds{"gpt2", "llama", "gemma4", "bert", "t5"};
    if (std::ranges::count(kKinds, kind_) == 0)
      throw DataError(
          concat(path(), ": its tokenizer has the kind \"", kind_,
                 "\" (tokenizer.ggml.model); only gpt2, llama, gemma4, bert and t5 are ",
                 "supported; use the model's Hugging Face folder instead"));
    if (kind_ == "bert") spell_pieces();
  }

  std::unique_ptr<Tokenizer> tokenizer() const {
    const json::value root = kind_ == "gpt2"     ? by_merges()
                             : kind_ == "llama"  ? of_whole_texts(scored_merges())
                             : kind_ == "gemma4" ? of_whole_texts(listed_merges())
                             : kind_ == "bert"   ? by_pieces()
                                                 : by_unigrams();
    TokenizerFiles files{{"tokenizer.json", json::serialize(root) + "\n"},
                         {"tokenizer_config.json", json::serialize(settings()) + "\n"},
                         {"generation_config.json", json::serialize(generation()) + "\n"}};
    TokenizerSettings beside;
    if (const auto* end = kind_ == "bert" ? nullptr : special_.find("eos")) {
      beside.end_of_text = end->text;
      beside.end_of_text_file = path();
    }
    return tokenizer_of_json(root, path(), beside, std::move(files));
  }

 private:
  std::string path() const { return file_.path().string(); }
  void check_length(std::size_t length, const char* what) const {
    if (length != tokens_.size())
      throw DataError(concat(path(), ": ", kPrefix, what, " has ", length,
                             " elements, but there are ", tokens_.size(),
                             " tokens; convert the model again"));
  }
  bool is_present(std::size_t id) const {
    return uses_[id] != TokenType::kUnused || tokens_[id] != concat("[PAD", id, "]");
  }
  bool flag(const char* key, bool missing) const {
    return file_.flag(concat(kPrefix, key)).value_or(missing);
  }

  json::object vocabulary() const {
    json::object vocab(tokens_.size());
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (is_present(id)) vocab.emplace(tokens_[id], static_cast<std::int64_t>(id));
    return vocab;
  }
  json::array added_tokens() const {
    json::array added;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const bool is_special = uses_[id] == TokenType::kControl || uses_[id] == TokenType::kUnknown;
      if (!is_special && uses_[id] != TokenType::kUserDefined) continue;
      added.push_back(added_token(static_cast<std::int64_t>(id), tokens_[id], is_special));
    }
    return added;
  }
  /// Returns the post-processor that puts tokens around one text, and around two texts with
  /// `separators` end tokens between them; with 0 separators, it accepts only one text. Returns
  /// null if it adds no tokens.
  static json::value template_around(const GgufSpecialTokens::Token* start,
                                     const GgufSpecialTokens::Token* end, int separators,
                                     int second_type) {
    json::object tokens;
    const auto piece = [](const char* kind, const std::string& id, int type) {
      return json::object{{kind, json::object{{"id", id}, {"type_id", type}}}};
    };
    const auto add = [&](json::array& pieces, const GgufSpecialTokens::Token* token, int type) {
      if (token == nullptr) return;
      pieces.push_back(piece("SpecialToken", token->text, type));
      tokens[token->text] = json::object{{"id", token->text},
                                         {"ids", json::array{token->id}},
                                         {"tokens", json::array{json::string(token->text)}}};
    };
    json::array single;
    add(single, start, 0);
    single.push_back(piece("Sequence", "A", 0));
    json::array pair = single;
    add(single, end, 0);
    if (single.size() == 1) return nullptr;
    for (int i = 0; i < separators; ++i) add(pair, end, 0);
    pair.push_back(piece("Sequence", "B", second_type));
    add(pair, end, second_type);
    if (separators == 0) pair.clear();
    return json::object{{"type", "TemplateProcessing"},
                        {"single", std::move(single)},
                        {"pair", std::move(pair)},
                        {"special_tokens", std::move(tokens)}};
  }
  /// Returns the post-processor that the file's flags describe. RoBERTa puts two tokens between two
  /// texts.
  json::value template_of(bool adds_bos, bool adds_eos = false) const {
    const std::string architecture = file_.text("general.architecture").value_or("");
    const bool is_modern = architecture == "modern-bert";
    const auto* end = flag("add_eos_token", adds_eos) ? special_.find("eos") : nullptr;
    const int separators = end == nullptr                 ? 0
                           : is_modern                    ? 1
                           : architecture != "bert"       ? 0
                           : flag("add_sep_token", false) ? 2
                                                          : 1;
    return template_around(flag("add_bos_token", adds_bos) ? special_.find("bos") : nullptr, end,
                           separators, 0);
  }
  json::object model(json::array merges, bool by_bytes, bool ignores_merges) const {
    const auto* unknown = by_bytes ? nullptr : special_.find("unk");
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", unknown == nullptr ? json::value() : json::value(unknown->text)},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", !by_bytes},
            {"byte_fallback", !by_bytes},
            {"ignore_merges", ignores_merges},
            {"vocab", vocabulary()},
            {"merges", std::move(merges)}};
  }

  json::array listed_merges() const {
    if (file_.find(concat(kPrefix, "merges")) == nullptr)
      throw DataError(
          concat(path(), ": ", kPrefix,
                 "merges is missing, which its tokenizer needs; convert the model again"));
    json::array merges;
    for (const std::string& merge : file_.texts(concat(kPrefix, "merges")))
      merges.emplace_back(merge);
    return merges;
  }

  json::object by_merges() const {
    const NamedWords& words = words_of(file_);
    return TokenizerJson{
        .added_tokens = added_tokens(),
        .normalizer = words.composes ? json::value(json::object{{"type", "NFC"}}) : json::value(),
        .pre_tokenizer = pre_tokenizer_of(words),
        .post_processor = template_of(words.adds_bos),
        .decoder = byte_level(false, true),
        .model = model(listed_merges(), true, words.ignores_merges)}
        .root();
  }

  /// Describes merges in texts that are not split into words. Spaces are "▁".
  json::object of_whole_texts(json::array merges) const {
    const bool adds_space = flag("add_space_prefix", true);
    json::value normalizer = replace(" ", kPieceStart);
    json::array decoders{replace(kPieceStart, " "), json::object{{"type", "ByteFallback"}},
                         json::object{{"type", "Fuse"}}};
    if (adds_space) {
      normalizer = sequence(
          "normalizers",
          json::array{json::object{{"type", "Prepend"}, {"prepend", kPieceStart}}, normalizer});
      decoders.push_back(
          json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    return TokenizerJson{.added_tokens = added_tokens(),
                         .normalizer = std::move(normalizer),
                         .post_processor = template_of(true),
                         .decoder = sequence("decoders", std::move(decoders)),
                         .model = model(std::move(merges), false, false)}
        .root();
  }

  /// Converts "▁word" to "word" and "piece" to "##piece". Source: llama.cpp, conversion/bert.py.
  void spell_pieces() {
    const std::string_view start = kPieceStart;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (uses_[id] == TokenType::kControl || uses_[id] == TokenType::kUnknown) continue;
      std::string& token = tokens_[id];
      if (token.size() > start.size() && token.starts_with(start)) {
        token.erase(0, start.size());
      } else if (uses_[id] == TokenType::kNormal) {
        token.insert(0, kPieceContinuation);
      }
    }
    for (auto& token : special_.tokens) token.text = tokens_[static_cast<std::size_t>(token.id)];
    replace_role("bos", "cls");
    replace_role("eos", "sep");
    special_.ends.clear();
  }
  /// Renames the role `role` to `by`. Drops the token of `role` if another token already has the
  /// role `by`.
  void replace_role(const std::string& role, const std::string& by) {
    const bool is_taken = special_.find(by) != nullptr;
    if (is_taken) std::erase_if(special_.tokens, [&](auto& token) { return token.role == role; });
    for (auto& token : special_.tokens)
      if (token.role == role) token.role = by;
  }
  const GgufSpecialTokens::Token& role(const char* name) const {
    if (const auto* token = special_.find(name)) return *token;
    throw DataError(concat(path(), ": no key names its ", name, " token (", kPrefix,
                           "…_token_id); convert the model again"));
  }
  /// Returns whether text is lowercased. Older files have no key for it, but vocabularies for
  /// lowercased text have no upper case.
  bool lowers_case() const {
    constexpr const char* kKey = "tokenizer.ggml.normalizer.lowercase";
    if (const auto flag = file_.flag(kKey)) return *flag;
    std::size_t cased = 0;
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (uses_[id] == TokenType::kNormal &&
          std::ranges::any_of(tokens_[id], [](char c) { return c >= 'A' && c <= 'Z'; }))
        ++cased;
    constexpr std::size_t kFew = 100;  // fewer than one token in kFew
    if (kFew * cased < tokens_.size()) return true;
    warn(path(), concat(kKey, " is missing, but ", cased,
                        " tokens have upper case, so text keeps its case; llama.cpp lowers it"));
    return false;
  }
  json::object by_pieces() const {
    const bool lowers = lowers_case();
    json::object model{{"type", "WordPiece"},
                       {"unk_token", role("unk").text},
                       {"continuing_subword_prefix", kPieceContinuation},
                       {"max_input_chars_per_word", 100},
                       {"vocab", vocabulary()}};
    return TokenizerJson{
        .added_tokens = added_tokens(),
        .normalizer = json::object{{"type", "BertNormalizer"},
                                   {"clean_text", true},
                                   {"handle_chinese_chars", true},
                                   {"strip_accents", flag("normalizer.strip_accents", lowers)},
                                   {"lowercase", lowers}},
        .pre_tokenizer = json::object{{"type", "BertPreTokenizer"}},
        .post_processor = template_around(&role("cls"), &role("sep"), 1, 1),
        .decoder =
            json::object{{"type", "WordPiece"}, {"prefix", kPieceContinuation}, {"cleanup", true}},
        .model = std::move(model)}
        .root();
  }

  json::object by_unigrams() const {
    const std::vector<double> scores = file_.numbers(concat(kPrefix, "scores"));
    check_length(scores.size(), "scores");
    for (const char* key : {"add_space_prefix", "remove_extra_whitespaces"})
      if (!flag(key, false))
        throw DataError(concat(path(), ": ", kPrefix, key, " is not true, which is not supported ",
                               "with unigrams; use the model's Hugging Face folder instead"));
    std::size_t size = tokens_.size();
    while (size > 0 && uses_[size - 1] == TokenType::kUnused) --size;
    json::array vocab;
    for (std::size_t id = 0; id < size; ++id) vocab.push_back(json::array{tokens_[id], scores[id]});
    const json::object spaces{{"type", "Metaspace"},
                              {"replacement", kPieceStart},
                              {"prepend_scheme", "always"},
                              {"split", true}};
    return TokenizerJson{
        .added_tokens = added_tokens(),
        .normalizer = character_map(),
        .pre_tokenizer = sequence("pretokenizers",
                                  json::array{json::object{{"type", "WhitespaceSplit"}}, spaces}),
        .post_processor = template_of(false, true),
        .decoder = spaces,
        .model = {{"type", "Unigram"},
                  {"unk_id", role("unk").id},
                  {"vocab", std::move(vocab)},
                  {"byte_fallback", false}}}
        .root();
  }
  json::value character_map() const {
    std::vector<std::uint8_t> bytes;
    for (const std::int64_t byte : file_.counts(concat(kPrefix, "precompiled_charsmap")))
      bytes.push_back(narrow<std::uint8_t>(byte, "a byte of precompiled_charsmap"));
    if (bytes.empty()) return nullptr;
    return json::object{{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(bytes)}};
  }

  json::array scored_merges() const {
    const std::vector<double> scores = file_.numbers(concat(kPrefix, "scores"));
    check_length(scores.size(), "scores");
    try {
      return ScoredMerges(tokens_, uses_, scores).all();
    } catch (const DataError& error) {
      throw DataError(concat(path(), ": ", error.what(), "; convert the model again"));
    }
  }

  json::object settings() const {
    json::object config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false}};
    for (const auto& token : special_.tokens) config[token.role + "_token"] = token.text;
    json::array templates;
    for (const auto& [name, text] : gguf_chat_templates(file_))
      templates.push_back(json::object{{"name", name}, {"template", text}});
    if (templates.size() == 1 && templates[0].at("name") == json::value("default")) {
      config["chat_template"] = templates[0].at("template");
    } else if (!templates.empty()) {
      config["chat_template"] = std::move(templates);
    }
    return config;
  }
  json::object generation() const {
    json::object config;
    for (const char* role : {"bos", "pad"})
      if (const auto* token = special_.find(role)) config[concat(role, "_token_id")] = token->id;
    if (special_.ends.size() == 1) config["eos_token_id"] = special_.ends.front();
    if (special_.ends.size() > 1)
      config["eos_token_id"] = json::array(special_.ends.begin(), special_.ends.end());
    return config;
  }

  const GgufFile& file_;
  GgufSpecialTokens special_;
  const std::string kind_;
  std::vector<std::string> tokens_;
  std::vector<std::int64_t> uses_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const GgufFile& file) {
  return GgufTokenizer(file).tokenizer();
}

}  // namespace hybrid_trainer
