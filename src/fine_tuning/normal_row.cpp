#include "src/fine_tuning/normal_row.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/fine_tuning/shaped_row.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

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
    if (value == nullptr) throw DataError(concat("\"", key, "\" is no text"));
    return text_in_row(*value, key);
  }

  /// Member of the row next to its chat, or null.
  const json::value* beside(const char* key) {
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

  /// What stands beside the messages comes first, unless they begin with one of their own.
  void read_after_system(const char* key, const char* role = nullptr) {
    const json::value* system = beside("system");
    const std::string instructions = system == nullptr ? "" : text_in_row(*system, "system");
    const bool is_beside = !instructions.empty();
    if (is_beside) add(json::object{{"role", "system"}, {"content", instructions}});
    read_messages(key, role);
    const auto is_system = [](const json::value& message) {
      return message.get_object().at("role") == json::value("system");
    };
    const bool says_it_twice =
        row_.messages.size() > 1 && is_system(row_.messages[0]) && is_system(row_.messages[1]);
    if (!is_beside || !says_it_twice) return;
    const auto content = [&](std::size_t i) { return row_.messages[i].get_object().at("content"); };
    if (content(0) != content(1)) row_.used.erase("system");
    row_.messages.erase(row_.messages.begin());
    row_.trains.erase(row_.trains.begin());
    std::erase_if(row_.notable, [](const NormalRow::Notable& one) { return one.message == 0; });
    for (NormalRow::Notable& one : row_.notable) --one.message;
  }

  /// A list of messages; or, where `role` says whose they are, a text or one message.
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
                 role == nullptr ? "a list of messages" : "a text or a list of messages"));
    }
  }

  void add(const json::value& message) {
    NormalMessage normal = normal_message(message, form_, unused_);
    for (auto& [name, text] : normal.notable)
      row_.notable.push_back({row_.messages.size(), name, std::move(text)});
    row_.messages.push_back(std::move(normal.message));
    row_.trains.push_back(normal.trains);
    if (!normal.said_role.empty()) row_.said_roles.insert(std::move(normal.said_role));
    row_.is_chat = true;
  }

  void read_variables() {
    json::value tools = normal_tools(beside("tools"));
    if (tools.is_null()) {  // before tools were of several types
      tools = normal_tools(beside("functions"));
      if (json::array* const all = tools.if_array()) {
        for (json::value& tool : *all)
          tool = json::object{{"type", "function"}, {"function", std::move(tool)}};
      }
    }
    row_.variables["tools"] = std::move(tools);
    const json::value* documents = beside("documents");
    row_.variables["documents"] = documents == nullptr ? json::value() : *documents;
    const json::value* more = beside("chat_template_kwargs");
    if (more == nullptr) return;
    if (!more->is_object()) throw DataError("\"chat_template_kwargs\" is no object");
    for (const auto& [name, value] : more->get_object()) row_.variables[name] = value;
  }

  const json::object& example_;
  const MessageForm& form_;
  std::set<std::string>& unused_;
  NormalRow row_;
};

}  // namespace

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
