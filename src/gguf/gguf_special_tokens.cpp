#include "src/gguf/gguf_special_tokens.h"

#include <algorithm>
#include <set>

namespace hybrid_trainer {

namespace {

constexpr std::pair<const char*, const char*> kRoles[] = {
    {"bos", "bos_token_id"},       {"eos", "eos_token_id"},     {"unk", "unknown_token_id"},
    {"sep", "seperator_token_id"}, {"pad", "padding_token_id"}, {"cls", "cls_token_id"},
    {"mask", "mask_token_id"}};

/// Texts of tokens at which llama.cpp ends an answer. Source: llama.cpp, src/llama-vocab.cpp.
constexpr std::string_view kEnds[] = {"<|eot_id|>",
                                      "<|im_end|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<|flush|>",
                                      "<|calls|>",
                                      "<end_of_turn>",
                                      "<|endoftext|>",
                                      "</s>",
                                      "<|eom_id|>",
                                      "<EOT>",
                                      "_<EOT>",
                                      "[EOT]",
                                      "[EOS]",
                                      "<|end_of_text|>",
                                      "<end_of_utterance>",
                                      "<eos>",
                                      "<turn|>"};

constexpr std::int64_t kControl = 3;  // tokenizer.ggml.token_type

}  // namespace

const GgufSpecialTokens::Token* GgufSpecialTokens::find(const std::string& role) const {
  const auto found = std::ranges::find(tokens, role, &Token::role);
  return found == tokens.end() ? nullptr : &*found;
}

bool is_end_of_turn_name(std::string_view text) {
  return std::ranges::find(kEnds, text) != std::end(kEnds);
}

std::vector<std::pair<std::string, std::string>> gguf_chat_templates(const GgufFile& file) {
  const std::string key = "tokenizer.chat_template";
  std::vector<std::pair<std::string, std::string>> templates;
  for (const auto& [name, value] : file.values())
    if (name == key || name.starts_with(key + "."))
      templates.emplace_back(name == key ? "default" : name.substr(key.size() + 1),
                             file.text(name).value_or(""));
  return templates;
}

GgufSpecialTokens read_gguf_special_tokens(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  const std::vector<std::string> texts = file.texts(prefix + "tokens");
  const std::vector<std::int64_t> uses = file.counts(prefix + "token_type");
  const auto size = static_cast<std::int64_t>(texts.size());
  const auto id_under = [&](const std::string& key) {
    const std::optional<std::int64_t> id = file.count(prefix + key);
    if (id && (*id < 0 || *id >= size))
      throw DataError(concat(file.path().string(), ": ", prefix, key, " is ", *id,
                             ", but there are ", size, " tokens; convert the model again"));
    return id;
  };
  GgufSpecialTokens special;
  std::set<std::int64_t> ends;
  for (const auto& [role, key] : kRoles)
    if (const auto id = id_under(key))
      special.tokens.push_back({role, *id, texts[static_cast<std::size_t>(*id)]});
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto id = id_under(key)) ends.insert(*id);
  for (const std::int64_t id : file.counts(prefix + "eos_token_ids"))  // Ollama's
    if (id >= 0 && id < size) ends.insert(id);
  for (std::int64_t id = 0;
       id < std::min<std::int64_t>(size, static_cast<std::int64_t>(uses.size())); ++id) {
    const auto place = static_cast<std::size_t>(id);
    if (uses[place] == kControl && is_end_of_turn_name(texts[place])) ends.insert(id);
  }
  special.ends = {ends.begin(), ends.end()};
  return special;
}

}  // namespace hybrid_trainer
