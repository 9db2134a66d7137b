#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "hybrid_trainer/chat/chat_template.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/files/text_file.h"
#include "hybrid_trainer/gguf/gguf_file.h"
#include "hybrid_trainer/gguf/gguf_special_tokens.h"

namespace hybrid_trainer {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLargestTemplate = std::size_t{1} << 20;
constexpr std::size_t kLargestConfig = std::size_t{64} << 20;

/// The text of a string, or the content of an added token's object.
const json::string* token_text(const json::value& value) {
  if (value.is_object()) {
    const json::value* content = value.get_object().if_contains("content");
    return content == nullptr ? nullptr : content->if_string();
  }
  return value.if_string();
}

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// The texts of chat_template, which may be a list of templates with names.
NamedTexts template_texts(const json::value& value, const std::string& name) {
  if (value.is_string()) return {{"default", std::string(value.get_string())}};
  if (!value.is_array())
    throw DataError(concat(name, ": chat_template: want a text, or a list of {name, template}"));
  NamedTexts texts;
  for (const json::value& entry : value.get_array()) {
    const json::object* object = entry.if_object();
    const json::value* title = object == nullptr ? nullptr : object->if_contains("name");
    const json::value* text = object == nullptr ? nullptr : object->if_contains("template");
    if (title == nullptr || !title->is_string() || text == nullptr || !text->is_string())
      throw DataError(concat(name, ": chat_template: want a list of {name, template}"));
    texts.emplace_back(title->get_string(), text->get_string());
  }
  return texts;
}

const std::string* text_named(const NamedTexts& texts, std::string_view name) {
  const auto found = std::ranges::find(texts, name, &NamedTexts::value_type::first);
  return found == texts.end() ? nullptr : &found->second;
}

void read_templates(const json::value& value, const std::string& name, ChatFiles& files) {
  const NamedTexts texts = template_texts(value, name);
  const std::string* text = text_named(texts, "default");
  if (text == nullptr) {
    std::string known;
    for (const auto& [title, ignored] : texts) known += (known.empty() ? "" : ", ") + title;
    throw DataError(concat(name, ": chat_template: none is named \"default\"; there are ", known));
  }
  files.chat_template.emplace(*text, name + ": chat_template");
  const std::string* of_tools = text_named(texts, "tool_use");
  try {
    if (of_tools != nullptr)
      files.tool_template.emplace(*of_tools, name + ": chat_template tool_use");
  } catch (const DataError& error) {  // chats without tools do not need it
    files.tool_template_problem = error.what();
  }
}

/// The object in a file; an empty one where there is no file.
json::object object_in(const fs::path& file) {
  if (!fs::exists(file)) return {};
  json::value config = read_json(file, {.max_bytes = kLargestConfig});
  if (!config.is_object()) throw DataError(concat(file.string(), ": want a JSON object"));
  return std::move(config.get_object());
}

}  // namespace

const ChatTemplate& ChatFiles::template_for(bool has_tools) const {
  if (has_tools && !tool_template_problem.empty()) throw DataError(tool_template_problem);
  if (has_tools && tool_template) return *tool_template;
  if (!chat_template) throw DataError("the model's folder has no chat template");
  return *chat_template;
}

std::string ChatFiles::special_token(const std::string& name) const {
  for (const auto& [key, text] : special_tokens)
    if (key == name) return text;
  return "";
}

namespace {

std::vector<std::pair<std::string, std::string>> special_tokens_of(const GgufFile& file) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& token : read_gguf_special_tokens(file).tokens)
    tokens.emplace_back(token.role + "_token", token.text);
  return tokens;
}

ChatFiles chat_files_of(const GgufFile& file) {
  ChatFiles files;
  files.special_tokens = special_tokens_of(file);
  if (const auto text = file.text("tokenizer.chat_template")) {
    if (text->size() > kLargestTemplate)
      throw DataError(concat(file.path().string(), ": its chat template has ", text->size(),
                             " bytes; want at most ", kLargestTemplate));
    files.chat_template.emplace(*text, file.path().string() + ": chat_template");
  }
  return files;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_special_tokens(const fs::path& folder) {
  if (GgufFile::is_one(folder)) return special_tokens_of(GgufFile(folder));
  std::vector<std::pair<std::string, std::string>> tokens;
  const auto add = [&](std::string_view name, const json::value& value) {
    const json::string* text = token_text(value);
    const bool is_known =
        std::ranges::find(tokens, name, &std::pair<std::string, std::string>::first) !=
        tokens.end();
    if (text != nullptr && !is_known) tokens.emplace_back(name, *text);
  };
  const json::object config = object_in(folder / "tokenizer_config.json");
  const json::object map = object_in(folder / "special_tokens_map.json");
  const json::value* decoder = config.if_contains("added_tokens_decoder");
  const bool is_newer = decoder != nullptr && !decoder->is_null();
  for (const json::object* file :
       is_newer ? std::array{&config, &map} : std::array{&map, &config}) {
    for (const auto& [key, value] : *file) {
      if (key.ends_with("_token")) add(key, value);
      const bool holds_names =
          key == "extra_special_tokens" || key == "model_specific_special_tokens";
      if (!holds_names || !value.is_object()) continue;
      for (const auto& [name, token] : value.get_object()) add(name, token);
    }
  }
  return tokens;
}

ChatFiles read_chat_files(const fs::path& folder) {
  if (GgufFile::is_one(folder)) return chat_files_of(GgufFile(folder));
  if (!fs::is_directory(folder)) throw MissingInput(concat("there is no folder ", folder.string()));
  ChatFiles files;
  files.special_tokens = read_special_tokens(folder);
  const fs::path template_path = folder / "chat_template.jinja";
  if (fs::exists(template_path)) {
    files.chat_template.emplace(read_text(template_path, kLargestTemplate), template_path.string());
    return files;
  }
  const fs::path config_path = folder / "tokenizer_config.json";
  const json::object config = object_in(config_path);
  const json::value* text = config.if_contains("chat_template");
  if (text != nullptr && !text->is_null()) read_templates(*text, config_path.string(), files);
  return files;
}

}  // namespace hybrid_trainer
