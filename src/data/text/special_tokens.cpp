#include <algorithm>
#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/core/narrow.h"
#include "src/data/text/piece_tokenizer.h"
#include "src/data/text/tokenizer_files.h"
#include "src/files/json.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr const char* kConfig = "tokenizer_config.json";

json::object object_in(const TokenizerFiles& files, const char* name) {
  const auto file = files.find(name);
  if (file == files.end()) return {};
  // The tokenizer was made of these files, so they are within its limits.
  json::value value = parse_json_text(file->second, name, {.max_bytes = file->second.size()});
  return value.is_object() ? std::move(value.get_object()) : json::object{};
}

/// Returns a token's text, which is a string or {"content": …}; empty if there is none.
std::string text_of_token(const json::value* token) {
  if (token != nullptr && token->is_object()) token = token->get_object().if_contains("content");
  return token != nullptr && token->is_string() ? std::string(token->get_string()) : "";
}

using TokensByText = std::map<std::string, std::int32_t>;

void add_if_special(const json::value& token, const json::value& id, TokensByText& tokens) {
  const json::value* special =
      token.is_object() ? token.get_object().if_contains("special") : nullptr;
  if (special != nullptr && *special == json::value(true) && id.is_int64())
    tokens[text_of_token(&token)] = narrow<std::int32_t>(id.get_int64());
}

TokensByText listed_tokens(const TokenizerFiles& files) {
  TokensByText tokens;
  const json::object config = object_in(files, kConfig);
  json::object root = object_in(files, "tokenizer.json");
  if (const auto lines = files.find("vocab.txt"); root.empty() && lines != files.end())
    root = word_piece_json(lines->second, config, object_in(files, "special_tokens_map.json"), "");
  if (const json::value* added = root.if_contains("added_tokens"); added && added->is_array())
    for (const json::value& token : added->get_array())
      if (token.is_object() && token.get_object().contains("id"))
        add_if_special(token, token.get_object().at("id"), tokens);
  const json::value* by_id = config.if_contains("added_tokens_decoder");
  if (by_id != nullptr && by_id->is_object())
    for (const auto& [id, token] : by_id->get_object())
      add_if_special(token, parse_json_text(std::string(id), kConfig), tokens);
  return tokens;
}

}  // namespace

SpecialTokenIds special_token_ids_of(const Tokenizer& tokenizer) {
  const TokensByText tokens = listed_tokens(tokenizer.files());
  SpecialTokenIds special;
  for (const auto& [text, id] : tokens) special.ids.push_back(id);
  std::ranges::sort(special.ids);
  // If the files name no mask token, transformers' classes use one of the last two texts.
  for (const std::string& mask :
       {text_of_token(object_in(tokenizer.files(), kConfig).if_contains("mask_token")),
        text_of_token(
            object_in(tokenizer.files(), "special_tokens_map.json").if_contains("mask_token")),
        std::string("[MASK]"), std::string("<mask>")}) {
    const auto found = tokens.find(mask);
    if (!special.mask && found != tokens.end()) special.mask = found->second;
  }
  return special;
}

std::vector<bool> word_continuations(const Tokenizer& tokenizer) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto* const pieces = dynamic_cast<const PieceTokenizer<WordPieceModel>*>(&tokenizer);
  std::vector<bool> continues;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    // WordPiece decodes punctuation without a blank before it, although it is a separate word.
    const std::string_view text = tokenizer.token_bytes(id);
    continues.push_back(pieces != nullptr
                            ? pieces->spelling(id).starts_with(pieces->model().prefix)
                            : text.empty() || kBlanks.find(text.front()) == kBlanks.npos);
  }
  return continues;
}

}  // namespace hybrid_trainer
