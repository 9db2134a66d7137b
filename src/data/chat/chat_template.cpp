#include "src/data/chat/chat_template.h"

#include <boost/json.hpp>
#include <cctype>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/evaluation.h"
#include "src/data/chat/syntax.h"
#include "src/files/foreign_files.h"
#include "src/files/json.h"
#include "src/files/text.h"
#include "src/gguf/gguf_file.h"
#include "src/gguf/gguf_special_tokens.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

jinja::Value value_of_json(const json::value& value) {
  switch (value.kind()) {
    case json::kind::bool_: return {value.get_bool()};
    case json::kind::int64: return {value.get_int64()};
    case json::kind::uint64:
      throw jinja::Problem(concat("the number ", value.get_uint64(), " does not fit in 64 bits"));
    case json::kind::double_: return {value.get_double()};
    case json::kind::string: return {std::string(value.get_string())};
    case json::kind::array: {
      jinja::List items;
      for (const json::value& item : value.get_array()) items.push_back(value_of_json(item));
      return jinja::list_of(std::move(items));
    }
    case json::kind::object: {
      jinja::Dict entries;
      for (const auto& [key, entry] : value.get_object())
        entries.emplace_back(key, value_of_json(entry));
      return jinja::dict_of(std::move(entries));
    }
    case json::kind::null: break;
  }
  return {jinja::None{}};
}

constexpr std::size_t kLargestConfig = std::size_t{64} << 20;

/// Returns the text of a token, which is a string or an object with "content"; otherwise null.
const json::string* token_text(const json::value& value) {
  if (value.is_object()) {
    const json::value* content = value.get_object().if_contains("content");
    return content == nullptr ? nullptr : content->if_string();
  }
  return value.if_string();
}

void take_templates(const std::vector<NamedTemplate>& templates, ChatFiles& files) {
  const NamedTemplate* of_chats = find_template(templates, "default");
  if (of_chats == nullptr) return;
  files.chat_template.emplace(of_chats->text, of_chats->place);
  const NamedTemplate* of_tools = find_template(templates, "tool_use");
  try {
    if (of_tools != nullptr) files.tool_template.emplace(of_tools->text, of_tools->place);
  } catch (const DataError& error) {  // not needed by chats without tools
    files.tool_template_problem = error.what();
  }
}

json::object chat_settings_in(const FolderFiles& folder, const char* name) {
  if (!folder.contains(name)) return {};
  json::value config = folder.json(name, {.max_bytes = kLargestConfig});
  if (!config.is_object())
    throw DataError(concat((folder.path() / name).string(), ": want a JSON object"));
  return std::move(config.get_object());
}

constexpr const char* kQuestion = "What is this?";

/// Returns whether the template writes kQuestion for a user message with this content, and does not
/// write the content as a Python list.
bool writes_question(const ChatFiles& chat, json::value content, std::time_t now) {
  json::object variables{{"tools", nullptr}, {"documents", nullptr}};
  for (const auto& [name, token] : chat.special_tokens) variables[name] = token;
  variables["messages"] =
      json::array{json::object{{"role", "user"}, {"content", std::move(content)}}};
  variables["add_generation_prompt"] = false;
  try {
    const std::string text = chat.chat_template->render(variables, now).text;
    return text.find(kQuestion) != text.npos && text.find("'type': 'text'") == text.npos;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

struct ChatTemplate::Parsed : jinja::ParsedTemplate {};

ChatTemplate::ChatTemplate(const std::string& source, std::string name)
    : name_(std::move(name)), source_(source) {
  if (source.size() > kMaxBytes)
    throw DataError(
        concat(name_, ": the template has ", source.size(), " bytes; want at most ", kMaxBytes));
  parsed_ = std::make_unique<Parsed>(Parsed{jinja::parse_template(source, name_)});
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

bool ChatTemplate::marks_generation() const { return parsed_->marks_generation; }
bool ChatTemplate::reads_date() const { return parsed_->reads_date; }
bool ChatTemplate::mentions(std::string_view word) const {
  const auto is_word_character = [&](std::size_t at) {
    const auto c = static_cast<unsigned char>(at < source_.size() ? source_[at] : ' ');
    return std::isalnum(c) != 0 || c == '_';
  };
  for (std::size_t at = source_.find(word); at != source_.npos; at = source_.find(word, at + 1))
    if (!is_word_character(at - 1) && !is_word_character(at + word.size())) return true;
  return false;
}

RenderedChat ChatTemplate::render(const json::object& variables, std::time_t now) const {
  int line = 1;
  try {
    jinja::Dict values;
    for (const auto& [name, value] : variables) values.emplace_back(name, value_of_json(value));
    return jinja::render(*parsed_, std::move(values), now, line);
  } catch (const jinja::Problem& problem) {
    throw DataError(concat(name_, ":", line, ": ", problem.what()));
  }
}

const ChatTemplate& ChatFiles::template_for(bool has_tools) const {
  if (has_tools && !tool_template_problem.empty()) throw DataError(tool_template_problem);
  if (has_tools && tool_template) return *tool_template;
  if (!chat_template)
    throw DataError(missing_template.empty() ? "the model has no chat template" : missing_template);
  return *chat_template;
}

std::string ChatFiles::special_token(const std::string& name) const {
  for (const auto& [key, text] : special_tokens)
    if (key == name) return text;
  return "";
}

std::vector<std::pair<std::string, std::string>> read_special_tokens(const GgufFile& file) {
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& token : read_gguf_special_tokens(file).tokens)
    tokens.emplace_back(token.role + "_token", token.text);
  return tokens;
}

ChatFiles read_chat_files(const GgufFile& file) {
  ChatFiles files;
  files.special_tokens = read_special_tokens(file);
  std::vector<NamedTemplate> templates;
  for (const auto& [name, text] : gguf_chat_templates(file)) {
    templates.push_back({name, text, concat(file.path().string(), ": chat_template")});
    if (text.size() > kLargestTemplate)
      throw DataError(concat(file.path().string(), ": its chat template has ", text.size(),
                             " bytes; want at most ", kLargestTemplate));
  }
  take_templates(templates, files);
  const bool is_ollamas = file.path().filename().string().starts_with("sha256");
  files.missing_template =
      concat(file.path().string(), " has no chat template",
             is_ollamas ? ", and Ollama's separate template is not supported" : "",
             "; use rows of prompt and completion, or convert the file to a folder (hybrid export "
             "FILE --output FOLDER) and add a chat_template.jinja");
  return files;
}

std::vector<std::pair<std::string, std::string>> read_special_tokens(const FolderFiles& folder) {
  std::vector<std::pair<std::string, std::string>> tokens;
  const auto add = [&](std::string_view name, const json::value& value) {
    const json::string* text = token_text(value);
    const bool is_known =
        std::ranges::find(tokens, name, &std::pair<std::string, std::string>::first) !=
        tokens.end();
    if (text != nullptr && !is_known) tokens.emplace_back(name, *text);
  };
  const json::object config = chat_settings_in(folder, "tokenizer_config.json");
  const json::object map = chat_settings_in(folder, "special_tokens_map.json");
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

ChatFiles read_chat_files(const FolderFiles& folder) {
  const std::string path = folder.path().string();
  if (!fs::is_directory(folder.path()))
    throw MissingInput(path +
                       (fs::exists(folder.path()) ? ": is not a folder" : ": does not exist"));
  ChatFiles files;
  files.special_tokens = read_special_tokens(folder);
  std::map<std::string, std::string> texts;
  for (const std::string& name : additional_template_files(path))
    texts[name] = folder.text(name, kLargestTemplate);
  for (const auto& [name, most] : {std::pair("chat_template.jinja", kLargestTemplate),
                                   {"tokenizer_config.json", kLargestConfig}})
    if (folder.contains(name)) texts[name] = folder.text(name, most);
  take_templates(named_templates(texts, path), files);
  files.missing_template =
      concat(path,
             " has no chat template; copy the chat_template.jinja of a model with the wanted chat "
             "format into it, or use rows of prompt and completion");
  return files;
}

bool requires_content_parts(const ChatFiles& chat, std::time_t now) {
  return chat.chat_template && !writes_question(chat, kQuestion, now) &&
         writes_question(chat, json::array{json::object{{"type", "text"}, {"text", kQuestion}}},
                         now);
}

}  // namespace hybrid_trainer
