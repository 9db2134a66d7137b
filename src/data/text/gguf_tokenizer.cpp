#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/tokenizer_files.h"
#include "src/data/text/word_splitter.h"
#include "src/files/text.h"
#include "src/gguf/gguf_file.h"
#include "src/gguf/gguf_special_tokens.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

constexpr const char* kPrefix = "tokenizer.ggml.";
constexpr const char* kWordStart = "▁";

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

// Source: llama.cpp, src/llama-vocab.cpp.
constexpr std::array kNamedWords{
    NamedWords{"gpt-2", WordPattern::kGpt2},
    NamedWords{"phi-2", WordPattern::kGpt2},
    NamedWords{"mpt", WordPattern::kGpt2},
    NamedWords{"olmo", WordPattern::kGpt2},
    NamedWords{.name = "smollm", .pattern = WordPattern::kGpt2, .splits_digits = true},
    NamedWords{.name = "starcoder", .pattern = WordPattern::kGpt2, .splits_digits = true},
    NamedWords{.name = "refact", .pattern = WordPattern::kGpt2, .splits_digits = true},
    NamedWords{.name = "llama-bpe",
               .pattern = WordPattern::kLlama3,
               .ignores_merges = true,
               .adds_bos = true},
    NamedWords{.name = "llama3",
               .pattern = WordPattern::kLlama3,
               .ignores_merges = true,
               .adds_bos = true},
    NamedWords{"smaug-bpe", WordPattern::kLlama3},
    NamedWords{.name = "qwen2", .pattern = WordPattern::kQwen2, .composes = true},
    NamedWords{.name = "deepseek-r1-qwen", .pattern = WordPattern::kQwen2, .composes = true},
    NamedWords{.name = "qwen35", .pattern = WordPattern::kQwen35, .composes = true},
    NamedWords{.name = "tekken",
               .pattern = WordPattern::kTekken,
               .ignores_merges = true,
               .adds_bos = true},
    NamedWords{"gpt-4o", WordPattern::kGpt4o}};

const NamedWords& words_of(const GgufFile& file) {
  const std::string name = file.text(concat(kPrefix, "pre")).value_or("");
  const auto* found = std::ranges::find(kNamedWords, name, &NamedWords::name);
  if (found != kNamedWords.end()) return *found;
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

/// Derives merges from scores: for each token, by descending score, all splits into two tokens.
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
    constexpr std::size_t kLongest = 512;  // because all ways to split it are tried
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
  std::vector<std::size_t> order_;  // by descending score, then ascending id
};

/// Converts a GGUF file's tokenizer to the files of a Hugging Face folder.
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
    if (kind_ != "gpt2" && kind_ != "llama")
      throw DataError(
          concat(path(), ": its tokenizer has the kind \"", kind_,
                 "\" (tokenizer.ggml.model); only \"gpt2\" and \"llama\" are supported; ",
                 "use the model's Hugging Face folder instead"));
  }

  std::unique_ptr<Tokenizer> tokenizer() const {
    const json::value root = kind_ == "gpt2" ? by_merges() : by_scores();
    TokenizerFiles files{{"tokenizer.json", json::serialize(root) + "\n"},
                         {"tokenizer_config.json", json::serialize(settings()) + "\n"},
                         {"generation_config.json", json::serialize(generation()) + "\n"}};
    TokenizerSettings beside;
    if (const auto* end = special_.find("eos")) {
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
  /// Returns the post-processor that adds tokens around a text, or null.
  json::value template_of(bool adds_bos) const {
    json::array single;
    json::object tokens;
    const auto add = [&](const char* role) {
      const auto* token = special_.find(role);
      if (token == nullptr) return;
      single.push_back(
          json::object{{"SpecialToken", json::object{{"id", token->text}, {"type_id", 0}}}});
      tokens[token->text] = json::object{{"id", token->text},
                                         {"ids", json::array{token->id}},
                                         {"tokens", json::array{json::string(token->text)}}};
    };
    if (flag("add_bos_token", adds_bos)) add("bos");
    single.push_back(json::object{{"Sequence", json::object{{"id", "A"}, {"type_id", 0}}}});
    if (flag("add_eos_token", false)) add("eos");
    if (single.size() == 1) return nullptr;
    return json::object{{"type", "TemplateProcessing"},
                        {"single", std::move(single)},
                        {"pair", json::array()},
                        {"special_tokens", std::move(tokens)}};
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

  json::object by_merges() const {
    const NamedWords& words = words_of(file_);
    if (file_.find(concat(kPrefix, "merges")) == nullptr)
      throw DataError(
          concat(path(), ": ", kPrefix,
                 "merges is missing, which its tokenizer needs; convert the model again"));
    json::array merges;
    for (const std::string& merge : file_.texts(concat(kPrefix, "merges")))
      merges.emplace_back(merge);
    return TokenizerJson{
        .added_tokens = added_tokens(),
        .normalizer = words.composes ? json::value(json::object{{"type", "NFC"}}) : json::value(),
        .pre_tokenizer = pre_tokenizer_of(words),
        .post_processor = template_of(words.adds_bos),
        .decoder = byte_level(false, true),
        .model = model(std::move(merges), true, words.ignores_merges)}
        .root();
  }

  json::object by_scores() const {
    const std::vector<double> scores = file_.numbers(concat(kPrefix, "scores"));
    check_length(scores.size(), "scores");
    json::object scored = model(scored_merges(scores), false, false);
    const bool adds_space = flag("add_space_prefix", true);
    json::value normalizer = replace(" ", kWordStart);
    json::array decoders{replace(kWordStart, " "), json::object{{"type", "ByteFallback"}},
                         json::object{{"type", "Fuse"}}};
    if (adds_space) {
      normalizer = sequence(
          "normalizers",
          json::array{json::object{{"type", "Prepend"}, {"prepend", kWordStart}}, normalizer});
      decoders.push_back(
          json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    return TokenizerJson{.added_tokens = added_tokens(),
                         .normalizer = std::move(normalizer),
                         .post_processor = template_of(true),
                         .decoder = sequence("decoders", std::move(decoders)),
                         .model = std::move(scored)}
        .root();
  }

  json::array scored_merges(const std::vector<double>& scores) const {
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
  const GgufSpecialTokens special_;
  const std::string kind_;
  const std::vector<std::string> tokens_;
  std::vector<std::int64_t> uses_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const GgufFile& file) {
  return GgufTokenizer(file).tokenizer();
}

}  // namespace hybrid_trainer
