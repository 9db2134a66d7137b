#include "src/data/examples/normal_row.h"

#include <boost/algorithm/string/case_conv.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/data/chat/chat_template.h"
#include "src/data/examples/shaped_row.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLongestText = std::size_t{64} << 20;
/// Keys that select whether a turn is trained on.
constexpr const char* kTrains[] = {"weight", "train", "trainable", "loss", "loss_mask"};
/// Keys that select training targets in other programs.
constexpr const char* kUnused[] = {"train_detail", "training_detail", "train_on_turn", "loss_scale",
                                   "mask",         "masked",          "prefix",        "images",
                                   "image",        "audio",           "videos"};

std::string shown(const json::value& value) {
  return value.is_double() ? shortest(value.get_double()) : json::serialize(value).substr(0, 60);
}

/// Returns nullopt for text that is not JSON. Throws DataError for numbers that templates change.
std::optional<json::value> parsed(std::string_view text) {
  WideIntegers wide;
  json::value value;
  try {
    value = parse_python_json(text, "", kLongestText, wide);
  } catch (const DataError&) {
    return {};
  }
  check_integers(value, wide);
  return value;
}

void rename(json::object& message, const char* from, const char* to) {
  if (!message.contains(from)) return;
  json::value held = message.at(from);  // growing the object moves its values
  if (!message.contains(to)) message[to] = std::move(held);
  message.erase(from);
}

void erase_nulls(json::object& object) {
  for (auto at = object.begin(); at != object.end();)
    at = at->value().is_null() ? object.stable_erase(at) : at + 1;
}

std::string role_of(std::string_view from) {
  static constexpr std::pair<std::string_view, const char*> kRoles[] = {
      {"system", "system"},     {"developer", "developer"},
      {"user", "user"},         {"human", "user"},
      {"prompter", "user"},     {"assistant", "assistant"},
      {"gpt", "assistant"},     {"model", "assistant"},
      {"chatgpt", "assistant"}, {"bot", "assistant"},
      {"chatbot", "assistant"}, {"ai", "assistant"},
      {"bing", "assistant"},    {"bard", "assistant"},
      {"tool", "tool"},         {"observation", "tool"},
      {"function", "tool"},     {"function_response", "tool"},
      {"ipython", "ipython"},   {"function_call", "function_call"}};
  const std::string name = boost::algorithm::to_lower_copy(std::string(from));
  const auto found =
      std::ranges::find(kRoles, name, &std::pair<std::string_view, const char*>::first);
  return found == std::end(kRoles) ? std::string(from) : found->second;
}

/// Renames the key of a message's text to "content". Throws DataError if the text is ambiguous.
void name_content(json::object& message) {
  for (const char* key : {"content", "tool_calls", "function_call"})
    if (message.contains(key)) return;
  for (const char* key : {"text", "parts"}) {
    const json::value* const held = message.if_contains(key);
    if (held == nullptr || !(held->is_string() || held->is_array())) continue;
    rename(message, key, "content");
    return;
  }
  for (const auto& [key, value] : message)
    if ((value.is_string() || value.is_array()) && key != "name" && !is_message_key(key))
      throw DataError(concat("a message has no \"content\": got \"", std::string_view(key),
                             "\" under the role \"",
                             std::string_view(message.at("role").get_string()),
                             "\"; want {\"role\": …, \"content\": …}"));
}

/// Converts ShareGPT's tool calls, which are separate turns with JSON text.
void name_calls(json::object& message) {
  if (message.at("role") != json::value("function_call")) return;
  const json::value* content = message.if_contains("content");
  auto calls =
      content != nullptr && content->is_string() ? parsed(content->get_string()) : std::nullopt;
  if (calls && calls->is_object()) calls = json::array{*calls};
  if (!calls || !calls->is_array())
    throw DataError(
        "the text of a \"function_call\" turn is not a JSON object with \"name\" and "
        "\"arguments\"");
  message["role"] = "assistant";
  message["content"] = "";
  json::array list;
  for (json::value& function : calls->get_array())
    list.push_back(json::object{{"type", "function"}, {"function", function}});
  message["tool_calls"] = std::move(list);
}

bool take_train_flags(json::object& message) {
  bool trains = true;
  for (const char* key : kTrains) {
    const json::value* value = message.if_contains(key);
    if (value == nullptr) continue;
    const bool is_number = value->is_number();
    const double number = is_number ? value->to_number<double>() : 0;
    if (!value->is_bool() && !(is_number && (number == 0 || number == 1)))
      throw DataError(concat("\"", key, "\": got ", shown(*value),
                             ", want 0 or 1, or false or true: whether to train on the turn"));
    trains = trains && (is_number ? number != 0 : value->get_bool());
    message.erase(key);
  }
  return trains;
}

std::string text_of_parts(const json::array& parts) {
  std::string text;
  for (const json::value& part : parts) {
    const json::object* object = part.if_object();
    const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
    const json::value* held = object == nullptr ? &part : object->if_contains("text");
    const bool is_text = type == nullptr || *type == json::value("text") ||
                         *type == json::value("input_text") || *type == json::value("output_text");
    if (is_text && held == nullptr)
      throw DataError(concat("\"content\" has a part without \"text\": ", shown(part),
                             "; want {\"type\": \"text\", \"text\": …}"));
    if (!is_text || held == nullptr || !held->is_string())
      throw DataError(concat("\"content\" has a part that is not text: ", shown(part),
                             "; only text can be trained on"));
    text += std::string_view(held->get_string());
  }
  return text;
}

void normalize_content(json::object& message, const MessageForm& form) {
  json::value& content = message["content"];
  const json::value& role = message.at("role");  // Llama's name for the role tool
  const bool is_tool_message = role == json::value("tool") || role == json::value("ipython");
  if (content.is_null()) {
    content = "";
  } else if (content.is_array() && !(is_tool_message && !content.get_array().empty() &&
                                     content.get_array().front().is_object() &&
                                     !content.get_array().front().get_object().contains("text"))) {
    content = text_of_parts(content.get_array());
  } else if (!content.is_string() && !is_tool_message) {
    throw DataError(
        concat("\"content\": got ", shown(content), ", want a string or a list of text parts"));
  }
  if (form.null_content_with_calls && message.contains("tool_calls") &&
      content == json::value("")) {
    content = nullptr;
  } else if (form.content_as_parts && content.is_string()) {
    content = json::array{json::object{{"type", "text"}, {"text", content}}};
  }
}

void normalize_call(json::value& call, const MessageForm& form) {
  if (!call.is_object())
    throw DataError(concat("\"tool_calls\" contains ", shown(call), ", want objects"));
  const bool is_flat = &function_of(call.get_object()) == &call.get_object();
  if (form.wraps_calls && is_flat) {
    json::value function = call;
    call = json::object{{"type", "function"}, {"function", std::move(function)}};
  }
  json::object& function = function_of(call.get_object());
  if (const json::value* held = function.if_contains("arguments");
      held != nullptr && held->is_null())
    function.erase("arguments");
  for (const char* key : {"parameters", "args", "input"})
    if (!function.contains("arguments")) rename(function, key, "arguments");
  json::value& arguments = function["arguments"];
  if (arguments.is_null() || arguments == json::value("")) arguments = json::object{};
  const auto held = arguments.is_string() ? parsed(arguments.get_string()) : std::nullopt;
  if (form.arguments_as_text) {
    if (!arguments.is_string()) arguments = json_text(arguments);
  } else if (held && held->is_object()) {
    arguments = *held;
  }
}

void normalize_calls(json::object& message, const MessageForm& form) {
  if (const json::value* one = message.if_contains("function_call")) {  // older form
    const json::value function = *one;
    message.erase("function_call");
    message["tool_calls"] = json::array{json::object{{"type", "function"}, {"function", function}}};
  }
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr) return;
  if (calls->is_string()) *calls = parsed(calls->get_string()).value_or(*calls);
  if (!calls->is_array())
    throw DataError(concat("\"tool_calls\": got ", shown(*calls), ", want a list"));
  if (calls->get_array().empty()) {
    message.erase("tool_calls");
    return;
  }
  for (json::value& call : calls->get_array()) normalize_call(call, form);
}

/// Copies the reasoning to each key that templates read, like transformers.
void name_reasoning(json::object& message) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const json::value* found = message.if_contains(key);
    if (found == nullptr) continue;
    const json::value reasoning = *found;
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

/// Returns the texts that a template may silently omit, with their keys.
std::vector<std::pair<std::string, std::string>> optional_texts_of(const json::object& message) {
  std::vector<std::pair<std::string, std::string>> texts;
  const auto add = [&](const std::string& name, const json::value* value) {
    const bool is_text = value != nullptr && value->is_string() &&
                         value->get_string().find_first_not_of(" \t\r\n") != std::string::npos;
    if (is_text) texts.emplace_back(name, value->get_string());
    return is_text;
  };
  for (const char* key : {"reasoning_content", "thinking", "reasoning"})
    if (add(key, message.if_contains(key))) break;
  for (const char* key : {"tool_plan", "refusal"}) add(key, message.if_contains(key));
  const json::value& content = message.at("content");
  const json::array* const parts = content.if_array();
  const bool is_part = parts != nullptr && !parts->empty() && (*parts)[0].is_object();
  add(concat("content of ", std::string_view(message.at("role").get_string())),
      is_part ? (*parts)[0].get_object().if_contains("text") : &content);  // see MessageForm
  return texts;
}

class RowReader {
 public:
  RowReader(const json::object& example, const MessageForm& form, std::set<std::string>& unused)
      : example_(example), form_(form), unused_(unused) {}

  NormalRow run() {
    if (held(example_, "prompt") != nullptr && held(example_, "completion") != nullptr) {
      read_pair();
    } else if (held(example_, "messages") != nullptr) {
      read_after_system("messages");
    } else {
      row_.completion = text("text");
    }
    if (row_.is_chat) read_variables();
    return std::move(row_);
  }

 private:
  std::string text(const char* key) const {
    const json::value* value = held(example_, key);
    if (value == nullptr) throw DataError(concat("\"", key, "\" is not a string"));
    return text_in_row(*value, key);
  }

  /// Returns a member of the row other than its messages, or null. Marks it as used.
  const json::value* row_member(const char* key) {
    const json::value* value = held(example_, key);
    if (value != nullptr) row_.used.insert(key);
    return value;
  }

  void read_pair() {
    if (held(example_, "prompt")->is_string() && held(example_, "completion")->is_string()) {
      row_.prompt = text("prompt");
      row_.completion = text("completion");
      return;
    }
    read_after_system("prompt", "user");
    row_.prompt_messages = row_.messages.size();
    read_messages("completion", "assistant");
  }

  /// Reads messages after the row's system text, unless they begin with a system message.
  void read_after_system(const char* key, const char* role = nullptr) {
    const json::value* system = row_member("system");
    const std::string instructions = system == nullptr ? "" : text_in_row(*system, "system");
    const bool has_instructions = !instructions.empty();
    if (has_instructions) add(json::object{{"role", "system"}, {"content", instructions}});
    read_messages(key, role);
    const auto is_system = [](const json::value& message) {
      return message.get_object().at("role") == json::value("system");
    };
    const bool repeats_instructions =
        row_.messages.size() > 1 && is_system(row_.messages[0]) && is_system(row_.messages[1]);
    if (!has_instructions || !repeats_instructions) return;
    const auto content = [&](std::size_t i) { return row_.messages[i].get_object().at("content"); };
    if (content(0) != content(1)) row_.used.erase("system");
    row_.messages.erase(row_.messages.begin());
    row_.trains.erase(row_.trains.begin());
    std::erase_if(row_.optional_texts,
                  [](const NormalRow::OptionalText& one) { return one.message == 0; });
    for (NormalRow::OptionalText& one : row_.optional_texts) --one.message;
  }

  /// Reads a list of messages; with `role`, also a text of this role or a single message.
  void read_messages(const char* key, const char* role = nullptr) {
    const json::value* value = held(example_, key);
    const json::object* const one = role == nullptr ? nullptr : value->if_object();
    if (value->is_array()) {
      for (const json::value& message : value->get_array()) add(message);
    } else if (role != nullptr && value->is_string()) {
      add(json::object{{"role", role}, {"content", *value}});
    } else if (one != nullptr && (one->contains("role") || one->contains("from"))) {
      add(*value);
    } else {
      throw DataError(
          concat("\"", key, "\" is ", json::serialize(*value).substr(0, 60), "; want ",
                 role == nullptr ? "a list of messages" : "a string or a list of messages"));
    }
  }

  void add(const json::value& message) {
    NormalMessage normal = normal_message(message, form_, unused_);
    for (auto& [name, text] : normal.optional_texts)
      row_.optional_texts.push_back({row_.messages.size(), name, std::move(text)});
    row_.messages.push_back(std::move(normal.message));
    row_.trains.push_back(normal.trains);
    if (!normal.original_role.empty()) row_.original_roles.insert(std::move(normal.original_role));
    row_.is_chat = true;
  }

  void read_variables() {
    json::value tools = normal_tools(row_member("tools"));
    if (tools.is_null()) {  // older form
      tools = normal_tools(row_member("functions"));
      if (json::array* const all = tools.if_array()) {
        for (json::value& tool : *all)
          tool = json::object{{"type", "function"}, {"function", std::move(tool)}};
      }
    }
    row_.variables["tools"] = std::move(tools);
    const json::value* documents = row_member("documents");
    row_.variables["documents"] = documents == nullptr ? json::value() : *documents;
    const json::value* more = row_member("chat_template_kwargs");
    if (more == nullptr) return;
    if (!more->is_object()) throw DataError("\"chat_template_kwargs\" is not an object");
    for (const auto& [name, value] : more->get_object()) row_.variables[name] = value;
  }

  const json::object& example_;
  const MessageForm& form_;
  std::set<std::string>& unused_;
  NormalRow row_;
};

}  // namespace

std::string speaker_of(const json::value& message) {
  const json::object* const object = message.if_object();
  if (object == nullptr) return "";
  for (const char* key : {"role", "from"}) {
    const json::value* const speaker = object->if_contains(key);
    if (speaker == nullptr || !speaker->is_string()) continue;
    const std::string role = role_of(speaker->get_string());
    return role == "function_call" ? "assistant" : role;
  }
  return "";
}

bool is_message_key(std::string_view key) {
  static constexpr std::array kKeys{"role",         "content",   "tool_calls", "reasoning_content",
                                    "thinking",     "reasoning", "tool_plan",  "refusal",
                                    "tool_call_id", "id"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

std::string json_text(const json::value& value) {
  static const ChatTemplate writer("{{ value | tojson }}", "tojson");
  return writer.render({{"value", value}}, 0).text;
}

std::string text_in_row(const json::value& value, std::string_view key) {
  if (value.is_string()) return std::string(value.get_string());
  if (value.is_number() || value.is_bool()) return json_text(value);
  throw DataError(concat("\"", key, "\" is ", json::serialize(value).substr(0, 60),
                         "; want a string or a number"));
}

void check_integers(const json::value& value, const WideIntegers& wide) {
  if (const json::object* object = value.if_object()) {
    for (const auto& [key, member] : *object) check_integers(member, wide);
  } else if (const json::array* items = value.if_array()) {
    for (const json::value& item : *items) check_integers(item, wide);
  }
  const auto found = value.is_double() ? wide.find(value.get_double()) : wide.end();
  if (found == wide.end() && !value.is_uint64()) return;
  throw DataError(concat("it has the integer ",
                         found == wide.end() ? json::serialize(value) : found->second,
                         ", which does not fit in 64 bits; write it as a string"));
}

json::object& function_of(json::object& call) {
  json::value* const inner = call.if_contains("function");
  return inner != nullptr && inner->is_object() ? inner->get_object() : call;
}

NormalMessage normal_message(const json::value& given, const MessageForm& form,
                             std::set<std::string>& unused) {
  const json::object* object = given.if_object();
  if (object == nullptr) throw DataError(concat("a message is not an object: ", shown(given)));
  NormalMessage normal{*object};
  json::object& message = normal.message;
  erase_nulls(message);
  rename(message, "from", "role");
  rename(message, "value", "content");
  json::value* role = message.if_contains("role");
  if (role == nullptr || !role->is_string())
    throw DataError(concat("a message has no \"role\": ", shown(given)));
  const json::value said = *role;
  *role = role_of(said.get_string());
  if (object->contains("role") && *role != said) normal.original_role = said.get_string();
  for (const char* key : kUnused)
    if (message.contains(key)) unused.insert(key);
  normal.trains = take_train_flags(message);
  name_content(message);
  name_calls(message);
  normalize_calls(message, form);
  normalize_content(message, form);
  normal.optional_texts = optional_texts_of(message);
  name_reasoning(message);
  return normal;
}

json::value normal_tools(const json::value* given) {
  json::value tools = given == nullptr ? json::value() : *given;
  if (tools.is_string() && tools.get_string().empty()) return nullptr;
  if (tools.is_string()) tools = parsed(tools.get_string()).value_or(tools);
  if (tools.is_null() || (tools.is_array() && tools.get_array().empty())) return nullptr;
  if (!tools.is_array())
    throw DataError(concat("\"tools\": got ", shown(tools), ", want a list, or its JSON text"));
  for (json::value& tool : tools.get_array()) {
    if (tool.is_string()) tool = parsed(tool.get_string()).value_or(tool);
    if (!tool.is_object())
      throw DataError(concat("\"tools\" contains ", shown(tool), ", want objects"));
    json::value* const parameters = function_of(tool.get_object()).if_contains("parameters");
    if (parameters != nullptr && parameters->is_string())
      *parameters = parsed(parameters->get_string()).value_or(*parameters);
  }
  return tools;
}

bool NormalRow::has_calls() const {
  return std::ranges::any_of(messages, [](const json::value& message) {
    return message.get_object().contains("tool_calls");
  });
}

NormalRow normal_row(const json::object& example, const MessageForm& form,
                     std::set<std::string>& unused) {
  return RowReader(example, form, unused).run();
}

}  // namespace hybrid_trainer
