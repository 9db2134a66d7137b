#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

#include "src/data/text/tokenizer_steps.h"
#include "src/files/foreign_files.h"
#include "src/gguf/gguf_special_tokens.h"
#include "src/model_files/gguf/gguf_values.h"

namespace hybrid_trainer {

namespace {

/// Returns llama.cpp's name for the tokenizer's word splitting. Throws DataError if it has none.
std::string pre_tokenizer_of(const BpeDescription& bpe) {
  switch (bpe.words) {
    case BpeWords::kGpt2: return bpe.composes ? "modern-bert" : "gpt-2";
    case BpeWords::kLlama3: return bpe.ignores_merges ? "llama-bpe" : "smaug-bpe";
    case BpeWords::kQwen2: return "qwen2";
    case BpeWords::kTekken: return "tekken";
    case BpeWords::kGpt4o: return "gpt-4o";
    case BpeWords::kGpt2Digits: return "smollm";
    case BpeWords::kWholeText: return "default";
    case BpeWords::kQwen35:
    case BpeWords::kOther: break;
  }
  throw DataError(
      concat("llama.cpp has no name for this tokenizer's rule to split words, so a GGUF file "
             "cannot store it; its pre_tokenizer is ",
             bpe.steps.substr(0, 300), "; export a Hugging Face folder instead"));
}

std::int64_t use_number(TokenUse use) {
  switch (use) {
    case TokenUse::kText: return 1;
    case TokenUse::kUnknown: return 2;
    case TokenUse::kSpecial: return 3;
    case TokenUse::kAdded: return 4;
    case TokenUse::kByte: return 6;
    case TokenUse::kNone: break;
  }
  return 5;
}

std::string with_blanks(const std::string& text) {
  constexpr std::string_view kBlank = "▁";
  std::string blanks;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find(kBlank, at), text.size());
    blanks.append(text, at, next - at);
    if (next < text.size()) blanks += ' ';
    at = next + kBlank.size();
  }
  return blanks;
}

/// Returns each token's score, the negated rank of its first merge. llama.cpp joins by top score.
std::vector<double> scores_of(const BpeDescription& bpe) {
  std::unordered_map<std::string, std::size_t> ranks;
  for (std::size_t i = 0; i < bpe.merges.size(); ++i)
    ranks.emplace(bpe.merges[i].first + bpe.merges[i].second, i);
  std::vector<double> scores;
  for (const std::string& token : bpe.tokens) {
    const auto found = ranks.find(token);
    scores.push_back(found == ranks.end() ? -1e6 : -static_cast<double>(found->second));
  }
  return scores;
}

json::object object_of(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  return !error && value.is_object() ? value.get_object() : json::object();
}

std::string file_of(const Tokenizer& tokenizer, const char* name) {
  const auto found = tokenizer.files().find(name);
  return found == tokenizer.files().end() ? "" : found->second;
}

/// Returns a token in tokenizer_config.json, given as a text or as {"content": text}.
std::optional<std::string> named_token(const json::object& settings, const std::string& name) {
  const json::value* value = settings.if_contains(name);
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  if (value == nullptr || !value->is_string()) return {};
  return std::string(value->get_string());
}

std::vector<std::int64_t> ids_under(const json::object& config, const std::string& key) {
  const json::value* value = config.if_contains(key);
  std::vector<std::int64_t> ids;
  if (value == nullptr) return ids;
  for (const json::value& id : value->is_array() ? value->get_array() : json::array{*value})
    if (id.is_int64()) ids.push_back(id.get_int64());
  return ids;
}

/// A model's special tokens, from tokenizer_config.json or else the model's configuration.
class WrittenSpecialTokens {
 public:
  WrittenSpecialTokens(const TokenList& list, const Tokenizer& tokenizer,
                       const std::string& token_ids)
      : list_(list),
        settings_(object_of(file_of(tokenizer, "tokenizer_config.json"))),
        generation_(object_of(file_of(tokenizer, "generation_config.json"))),
        ids_(object_of(token_ids)) {}

  /// `before`, `after`: tokens around each text, which precede the named ones.
  std::vector<GgufPair> values(const std::vector<std::int32_t>& before = {},
                               const std::vector<std::int32_t>& after = {}) {
    add(before.empty() ? ids_of("bos") : std::vector<std::int64_t>{before.front()}, "bos_token_id");
    add_end_tokens(after);
    add(ids_of("unk"), "unknown_token_id");
    add(ids_of("pad"), "padding_token_id");
    return std::move(values_);
  }
  /// Returns the values of an encoder, given the tokens before and after a text.
  std::vector<GgufPair> values_around(const std::pair<std::int64_t, std::int64_t>& around,
                                      std::optional<std::int64_t> unknown,
                                      std::optional<std::int64_t> mask) {
    for (const char* key : {"bos_token_id", "cls_token_id"}) add({around.first}, key);
    for (const char* key : {"eos_token_id", "seperator_token_id"}) add({around.second}, key);
    add(unknown ? std::vector{*unknown} : ids_of("unk"), "unknown_token_id");
    add(ids_of("pad"), "padding_token_id");
    if (mask) add({*mask}, "mask_token_id");
    return std::move(values_);
  }
  /// Returns a warning of end tokens that llama.cpp ignores, or "".
  const std::string& warning() const { return warning_; }

 private:
  bool is_token(std::int64_t id) const {
    return id >= 0 && id < static_cast<std::int64_t>(list_.tokens.size());
  }
  /// Returns the ids of a special token such as "eos": first the token that tokenizer_config.json
  /// names, then the other ids in the model's configuration.
  std::vector<std::int64_t> ids_of(const std::string& name) const {
    std::vector<std::int64_t> ids;
    if (const auto token = named_token(settings_, name + "_token")) {
      const auto found = std::ranges::find(list_.tokens, *token);
      if (found != list_.tokens.end()) ids.push_back(found - list_.tokens.begin());
    }
    for (const std::int64_t id : ids_under(ids_, name + "_token_id"))
      if (is_token(id) && std::ranges::count(ids, id) == 0) ids.push_back(id);
    return ids;
  }
  void add(const std::vector<std::int64_t>& ids, const char* key) {
    if (!ids.empty()) values_.push_back(gguf_count(concat(kKeys, key), ids.front()));
  }
  /// Adds the end tokens. llama.cpp has three keys, and finds others by text; Ollama reads a list.
  void add_end_tokens(const std::vector<std::int32_t>& after) {
    std::vector<std::int64_t> ends(after.begin(), after.end()), unknown;
    for (const std::int64_t id : ids_of("eos"))
      if (std::ranges::count(ends, id) == 0) ends.push_back(id);
    for (const std::int64_t id : ids_under(generation_, "eos_token_id"))
      if (is_token(id) && std::ranges::count(ends, id) == 0) ends.push_back(id);
    add(ends, "eos_token_id");
    if (ends.size() < 2) return;
    values_.push_back(gguf_integers(concat(kKeys, "eos_token_ids"), ends));
    for (std::size_t i = 1; i < ends.size(); ++i)
      if (!is_end_of_turn_name(list_.tokens[static_cast<std::size_t>(ends[i])]))
        unknown.push_back(ends[i]);
    constexpr const char* kOthers[] = {"eot_token_id", "eom_token_id"};
    for (std::size_t i = 0; i < unknown.size(); ++i) {
      if (i < std::size(kOthers)) {
        add({unknown[i]}, kOthers[i]);
      } else {
        warning_ += concat(warning_.empty() ? "" : ", ",
                           list_.tokens[static_cast<std::size_t>(unknown[i])]);
      }
    }
    if (!warning_.empty())
      warning_ =
          concat("llama.cpp has keys for fewer end tokens, and will continue after ", warning_);
  }

  static constexpr const char* kKeys = "tokenizer.ggml.";
  const TokenList& list_;
  const json::object settings_, generation_, ids_;
  std::vector<GgufPair> values_;
  std::string warning_;
};

std::string key_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

/// Writes templates as gguf-py does: the default, the names of the others, and each by name.
void add_chat_templates(const Tokenizer& tokenizer, std::vector<GgufPair>& values) {
  std::vector<std::string> others;
  for (const NamedTemplate& one : named_templates(tokenizer.files(), "")) {
    const bool is_default = one.name == "default";
    const std::string key = is_default ? "" : "." + key_name(one.name);
    values.push_back(gguf_text("tokenizer.chat_template" + key, one.text));
    if (!is_default) others.push_back(key_name(one.name));
  }
  if (!others.empty()) values.push_back(gguf_texts("tokenizer.chat_templates", std::move(others)));
}

/// Tokens in the form of the file, with ggml's codes for their types.
struct WrittenTokens {
  std::vector<std::string> texts;
  std::vector<std::int64_t> uses;

  void add_to(std::vector<GgufPair>& values) && {
    values.push_back(gguf_texts("tokenizer.ggml.tokens", std::move(texts)));
    values.push_back(gguf_integers("tokenizer.ggml.token_type", std::move(uses)));
  }
};

/// Returns a token for each of the `rows` of the model's table. Throws DataError for more tokens.
WrittenTokens written_tokens(TokenList list, std::int64_t rows) {
  const auto known = static_cast<std::int64_t>(list.tokens.size());
  if (known > rows)
    throw DataError(concat("the tokenizer has ", known, " tokens, but the model's token table has ",
                           rows, " rows; give the tokenizer that it was trained with"));
  list.tokens.resize(static_cast<std::size_t>(rows));
  list.uses.resize(static_cast<std::size_t>(rows));
  WrittenTokens written;
  for (std::size_t id = 0; id < list.tokens.size(); ++id) {
    if (list.uses[id] == TokenUse::kNone) list.tokens[id] = concat("[PAD", id, "]");
    written.uses.push_back(use_number(list.uses[id]));
  }
  written.texts = std::move(list.tokens);
  return written;
}

/// Throws DataError for two tokens with the same text, which llama.cpp does not read.
void require_distinct(const WrittenTokens& written) {
  std::set<std::string_view> seen;
  for (const std::string& text : written.texts)
    if (!seen.insert(text).second)
      throw DataError(concat("a GGUF file would have two tokens \"", text.substr(0, 100),
                             "\", which llama.cpp does not read; export a Hugging Face folder "
                             "instead"));
}

void add_flags_of_template(const Tokenizer& tokenizer, std::vector<GgufPair>& values) {
  values.push_back(gguf_flag("tokenizer.ggml.add_bos_token", !tokenizer.template_start().empty()));
  values.push_back(gguf_flag("tokenizer.ggml.add_eos_token", !tokenizer.template_end().empty()));
}

/// Adds the special tokens of an encoder: those around a text, and others with a role. Throws
/// DataError unless there is one token before a text and one after it.
void add_encoder_values(const Tokenizer& tokenizer, WrittenSpecialTokens& of_model,
                        std::optional<std::int64_t> unknown, const ModelConfig& model,
                        std::vector<GgufPair>& values) {
  const auto start = tokenizer.template_start(), end = tokenizer.template_end();
  if (start.size() != 1 || end.size() != 1)
    throw DataError(
        concat("llama.cpp puts one token before a text and one after it, but the "
               "tokenizer puts ",
               start.size(), " before it and ", end.size(),
               " after it; export a Hugging Face folder instead"));
  values.push_back(
      gguf_count("tokenizer.ggml.token_type_count", std::max<std::int64_t>(1, model.token_types)));
  for (GgufPair& pair : of_model.values_around({start.front(), end.front()}, unknown,
                                               special_token_ids_of(tokenizer).mask))
    values.push_back(std::move(pair));
  add_flags_of_template(tokenizer, values);
  std::int64_t ends = 0;  // in a pair of texts
  for (const TemplatePiece& piece : tokenizer.input_template(true)) ends += piece.id == end.front();
  values.push_back(gguf_flag("tokenizer.ggml.add_sep_token", ends > 2));
}

/// Returns the special tokens of a decoder that embeds texts. Throws DataError for more than one
/// token before a text or after it.
std::vector<GgufPair> values_around(const Tokenizer& tokenizer, WrittenSpecialTokens& of_model) {
  const auto start = tokenizer.template_start(), end = tokenizer.template_end();
  if (start.size() > 1 || end.size() > 1)
    throw DataError(
        concat("llama.cpp puts at most one token before a text and one after it, but the "
               "tokenizer puts ",
               start.size(), " before it and ", end.size(),
               " after it; export a Hugging Face folder instead"));
  return of_model.values(start, end);
}

GgufVocabulary bpe_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                              const ModelConfig& model, bool is_encoder) {
  BpeDescription bpe = describe_bpe(tokenizer);
  const std::string pre = pre_tokenizer_of(bpe);
  const bool is_whole = bpe.words == BpeWords::kWholeText;
  if (bpe.adds_prefix_space && !is_whole)
    throw DataError(
        "llama.cpp has no byte-level tokenizer that adds a space before a text (add_prefix_space); "
        "export a Hugging Face folder instead");
  GgufVocabulary vocabulary;
  std::vector<GgufPair>& values = vocabulary.values;
  if (bpe.composes)
    vocabulary.warnings.emplace_back(
        "llama.cpp does not compose characters (NFC) before tokenizing: texts with separate "
        "accents get other tokens there");
  if (bpe.keeps_first_space)
    vocabulary.warnings.emplace_back(
        "llama.cpp adds a space before all texts, but this tokenizer (Metaspace) not before a "
        "text that begins with one, nor, with prepend_scheme first, after a special token: such "
        "texts get other tokens there");
  values = {gguf_text("tokenizer.ggml.model", is_whole ? "llama" : "gpt2"),
            gguf_text("tokenizer.ggml.pre", pre)};
  std::vector<double> scores = is_whole ? scores_of(bpe) : std::vector<double>();
  for (std::size_t id = 0; is_whole && id < bpe.tokens.size(); ++id)
    if (bpe.uses[id] == TokenUse::kAdded) bpe.tokens[id] = with_blanks(bpe.tokens[id]);
  WrittenTokens written = written_tokens(bpe, model.vocabulary);
  if (is_whole) {
    scores.resize(written.uses.size(), -1e6);
    values.push_back(gguf_numbers("tokenizer.ggml.scores", std::move(scores)));
  }
  std::move(written).add_to(values);
  if (!is_whole) {
    std::vector<std::string> merges;
    for (const auto& [left, right] : bpe.merges) merges.push_back(left + " " + right);
    values.push_back(gguf_texts("tokenizer.ggml.merges", std::move(merges)));
  }
  WrittenSpecialTokens of_model(bpe, tokenizer, token_ids);
  if (is_encoder) {
    add_encoder_values(tokenizer, of_model, {}, model, values);
  } else {
    std::ranges::move(
        model.pooling.empty() ? of_model.values() : values_around(tokenizer, of_model),
        std::back_inserter(values));
    add_flags_of_template(tokenizer, values);
  }
  if (!of_model.warning().empty()) vocabulary.warnings.push_back(of_model.warning());
  if (is_whole)
    values.push_back(gguf_flag("tokenizer.ggml.add_space_prefix", bpe.adds_prefix_space));
  add_chat_templates(tokenizer, values);
  return vocabulary;
}

/// Writes a word's first piece with "▁" before it, and the others without "##". Source: llama.cpp,
/// conversion/bert.py.
GgufVocabulary word_piece_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                                     const ModelConfig& model) {
  constexpr std::string_view kContinuation = "##";
  const WordPieceDescription pieces = describe_word_pieces(tokenizer);
  TokenList spelled = pieces;
  for (std::size_t id = 0; id < spelled.tokens.size(); ++id) {
    if (spelled.uses[id] != TokenUse::kText) continue;
    std::string& text = spelled.tokens[id];
    text = text.starts_with(kContinuation) ? text.substr(kContinuation.size()) : "▁" + text;
  }
  GgufVocabulary vocabulary{.values = {gguf_text("tokenizer.ggml.model", "bert"),
                                       gguf_text("tokenizer.ggml.pre", "default")}};
  WrittenTokens written = written_tokens(std::move(spelled), model.vocabulary);
  require_distinct(written);
  std::move(written).add_to(vocabulary.values);
  WrittenSpecialTokens of_model(pieces, tokenizer, token_ids);
  add_encoder_values(tokenizer, of_model, pieces.unknown, model, vocabulary.values);
  vocabulary.values.push_back(gguf_flag("tokenizer.ggml.normalizer.lowercase", pieces.lowers_case));
  vocabulary.values.push_back(
      gguf_flag("tokenizer.ggml.normalizer.strip_accents", pieces.strips_accents));
  if (!pieces.lowers_case)
    vocabulary.warnings.emplace_back(
        "llama.cpp versions without the key tokenizer.ggml.normalizer.lowercase lowercase all "
        "texts, but this model is cased");
  return vocabulary;
}

GgufVocabulary unigram_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                                  const ModelConfig& model) {
  const UnigramDescription unigrams = describe_unigrams(tokenizer);
  std::vector<double> scores = unigrams.scores;
  scores.resize(static_cast<std::size_t>(model.vocabulary), -1e4);  // as llama.cpp's converter
  GgufVocabulary vocabulary{.values = {gguf_text("tokenizer.ggml.model", "t5"),
                                       gguf_text("tokenizer.ggml.pre", "default")}};
  std::vector<GgufPair>& values = vocabulary.values;
  WrittenTokens written = written_tokens(unigrams, model.vocabulary);
  require_distinct(written);
  std::move(written).add_to(values);
  values.push_back(gguf_numbers("tokenizer.ggml.scores", std::move(scores)));
  values.push_back(gguf_flag("tokenizer.ggml.add_space_prefix", true));
  values.push_back(gguf_flag("tokenizer.ggml.remove_extra_whitespaces", true));
  if (!unigrams.character_map.empty())
    values.push_back(gguf_bytes("tokenizer.ggml.precompiled_charsmap", unigrams.character_map));
  WrittenSpecialTokens of_model(unigrams, tokenizer, token_ids);
  add_encoder_values(tokenizer, of_model, unigrams.unknown, model, values);
  return vocabulary;
}

}  // namespace

GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                               const ModelConfig& model) {
  const bool is_encoder = is_gguf_encoder(gguf_architecture(model));
  if (tokenizer.kind() == TokenizerKind::kBpe)
    return bpe_vocabulary(tokenizer, token_ids, model, is_encoder);
  if (is_encoder && tokenizer.kind() == TokenizerKind::kWordPiece)
    return word_piece_vocabulary(tokenizer, token_ids, model);
  if (is_encoder && tokenizer.kind() == TokenizerKind::kUnigram)
    return unigram_vocabulary(tokenizer, token_ids, model);
  throw DataError(concat("a GGUF file cannot store a tokenizer of ", name_of(tokenizer.kind()),
                         "; prepare the data with a BPE: hybrid prepare --tokenizer bpe"));
}

}  // namespace hybrid_trainer
