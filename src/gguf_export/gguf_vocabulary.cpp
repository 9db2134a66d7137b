#include "src/gguf_export/gguf_vocabulary.h"

#include <algorithm>
#include <boost/json.hpp>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/bpe_description.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

/// llama.cpp's name of how words are found. Throws DataError where it has none.
std::string pre_tokenizer_of(const BpeDescription& bpe) {
  switch (bpe.words) {
    case BpeWords::kGpt2:
      return "gpt-2";
    case BpeWords::kLlama3:
      return bpe.ignores_merges ? "llama-bpe" : "smaug-bpe";
    case BpeWords::kQwen2:
      return "qwen2";
    case BpeWords::kTekken:
      return "tekken";
    case BpeWords::kGpt4o:
      return "gpt-4o";
    case BpeWords::kGpt2Digits:
      return "smollm";
    case BpeWords::kWholeText:
      return "default";
    case BpeWords::kQwen35:
    case BpeWords::kOther:
      break;
  }
  throw DataError(concat("llama.cpp has no name for this tokenizer's words, so a GGUF file cannot ",
                         "hold it; its pre_tokenizer is ", bpe.steps.substr(0, 300),
                         "; export a Hugging Face folder instead"));
}

/// ggml's numbers of what a token is for.
std::int64_t use_number(TokenUse use) {
  switch (use) {
    case TokenUse::kText:
      return 1;
    case TokenUse::kUnknown:
      return 2;
    case TokenUse::kSpecial:
      return 3;
    case TokenUse::kAdded:
      return 4;
    case TokenUse::kByte:
      return 6;
    case TokenUse::kNone:
      break;
  }
  return 5;
}

std::string with_blanks(std::string text) {
  constexpr std::string_view kBlank = "▁";
  for (std::size_t at = 0; (at = text.find(kBlank, at)) != std::string::npos; ++at)
    text.replace(at, kBlank.size(), " ");
  return text;
}

/// llama.cpp joins the two parts whose token has the largest score: by minus the rank of the first
/// merge that makes it, that is the merge which comes first.
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

/// The file's JSON object; an empty one where there is none.
json::object object_of(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  return !error && value.is_object() ? value.get_object() : json::object();
}

std::string file_of(const Tokenizer& tokenizer, const char* name) {
  const auto found = tokenizer.files().find(name);
  return found == tokenizer.files().end() ? "" : found->second;
}

/// Of a token that tokenizer_config.json names, as a text or as {"content": text}.
std::optional<std::string> named_token(const json::object& settings, const std::string& name) {
  const json::value* value = settings.if_contains(name);
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  if (value == nullptr || !value->is_string()) return {};
  return std::string(value->get_string());
}

std::optional<std::int64_t> first_id(const json::object& ids, const std::string& key) {
  const json::value* value = ids.if_contains(key);
  if (value != nullptr && value->is_array() && !value->get_array().empty())
    value = &value->get_array()[0];
  if (value == nullptr || !value->is_int64()) return {};
  return value->get_int64();
}

/// By tokenizer_config.json, or else by the model's configuration.
void add_special(const BpeDescription& bpe, const json::object& settings, const json::object& ids,
                 const std::string& name, const std::string& key, std::vector<GgufPair>& values) {
  std::optional<std::int64_t> id = first_id(ids, name + "_token_id");
  if (const auto token = named_token(settings, name + "_token")) {
    const auto found = std::ranges::find(bpe.tokens, *token);
    if (found != bpe.tokens.end()) id = found - bpe.tokens.begin();
  }
  if (id && *id >= 0 && *id < static_cast<std::int64_t>(bpe.tokens.size()))
    values.push_back(gguf_count("tokenizer.ggml." + key, *id));
}

/// The text, or of several the one named "default".
std::string chat_template_of(const Tokenizer& tokenizer, const json::object& settings) {
  const std::string file = file_of(tokenizer, "chat_template.jinja");
  if (!file.empty()) return file;
  const json::value* given = settings.if_contains("chat_template");
  if (given != nullptr && given->is_string()) return std::string(given->get_string());
  if (given == nullptr || !given->is_array()) return "";
  for (const json::value& one : given->get_array()) {
    if (!one.is_object()) continue;
    const json::object& named = one.get_object();
    const json::value *name = named.if_contains("name"), *text = named.if_contains("template");
    if (name != nullptr && name->is_string() && name->get_string() == "default" &&
        text != nullptr && text->is_string())
      return std::string(text->get_string());
  }
  return "";
}

}  // namespace

GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                               std::int64_t rows) {
  if (tokenizer.kind() != TokenizerKind::kBpe)
    throw DataError(concat("a GGUF file has no place for a tokenizer of ",
                           name_of(tokenizer.kind()),
                           "; prepare the data with a BPE: hybrid prepare --tokenizer bpe"));
  BpeDescription bpe = describe_bpe(tokenizer);
  const std::string pre = pre_tokenizer_of(bpe);
  const bool is_whole = bpe.words == BpeWords::kWholeText;
  if (bpe.adds_prefix_space && !is_whole)
    throw DataError(
        "llama.cpp has no tokenizer of bytes that puts a blank before a text (add_prefix_space); "
        "export a Hugging Face folder instead");
  GgufVocabulary vocabulary;
  std::vector<GgufPair>& values = vocabulary.values;
  if (bpe.composes)
    vocabulary.warning =
        "llama.cpp does not compose characters (NFC) before it makes tokens: texts with letters "
        "and "
        "accents apart get other tokens there";
  values = {gguf_text("tokenizer.ggml.model", is_whole ? "llama" : "gpt2"),
            gguf_text("tokenizer.ggml.pre", pre)};
  const std::vector<double> scores = is_whole ? scores_of(bpe) : std::vector<double>();
  std::vector<std::int64_t> uses;
  for (const TokenUse use : bpe.uses) uses.push_back(use_number(use));
  for (std::size_t id = 0; id < bpe.tokens.size(); ++id) {
    if (bpe.uses[id] == TokenUse::kNone) bpe.tokens[id] = concat("[PAD", id, "]");
    if (is_whole && bpe.uses[id] == TokenUse::kAdded) bpe.tokens[id] = with_blanks(bpe.tokens[id]);
  }
  const json::object settings = object_of(file_of(tokenizer, "tokenizer_config.json")),
                     ids = object_of(token_ids);
  std::vector<GgufPair> special;
  add_special(bpe, settings, ids, "bos", "bos_token_id", special);
  add_special(bpe, settings, ids, "eos", "eos_token_id", special);
  add_special(bpe, settings, ids, "unk", "unknown_token_id", special);
  add_special(bpe, settings, ids, "pad", "padding_token_id", special);
  const auto known = static_cast<std::int64_t>(bpe.tokens.size());
  if (known > rows)
    throw DataError(concat("the tokenizer has ", known, " tokens, and the model's table ", rows,
                           " rows; give the tokenizer that it was trained with"));
  for (std::int64_t id = known; id < rows; ++id) {
    bpe.tokens.push_back(concat("[PAD", id, "]"));
    uses.push_back(use_number(TokenUse::kNone));
  }
  values.push_back(gguf_texts("tokenizer.ggml.tokens", std::move(bpe.tokens)));
  if (is_whole) {
    std::vector<double> all = scores;
    all.resize(uses.size(), -1e6);
    values.push_back(gguf_numbers("tokenizer.ggml.scores", std::move(all)));
  }
  values.push_back(gguf_integers("tokenizer.ggml.token_type", std::move(uses)));
  if (!is_whole) {
    std::vector<std::string> merges;
    for (const auto& [left, right] : bpe.merges) merges.push_back(left + " " + right);
    values.push_back(gguf_texts("tokenizer.ggml.merges", std::move(merges)));
  }
  values.insert(values.end(), special.begin(), special.end());
  values.push_back(gguf_flag("tokenizer.ggml.add_bos_token", !tokenizer.template_start().empty()));
  values.push_back(gguf_flag("tokenizer.ggml.add_eos_token", !tokenizer.template_end().empty()));
  if (is_whole)
    values.push_back(gguf_flag("tokenizer.ggml.add_space_prefix", bpe.adds_prefix_space));
  if (const std::string text = chat_template_of(tokenizer, settings); !text.empty())
    values.push_back(gguf_text("tokenizer.chat_template", text));
  return vocabulary;
}

}  // namespace hybrid_trainer
