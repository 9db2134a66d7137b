#include "src/fine_tuning/normal_row.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

/// Keys of a row that mean something elsewhere.
constexpr const char* kUnusedOfRows[] = {"images",    "image",  "videos",       "audio",
                                         "weight",    "train",  "history",      "chat_template",
                                         "loss_mask", "labels", "train_on_turn"};

class RowReader {
 public:
  RowReader(const json::object& example, const MessageForm& form, std::set<std::string>& unused)
      : example_(example), form_(form), unused_(unused) {}

  NormalRow run() {
    for (const char* key : kUnusedOfRows)
      if (held(key) != nullptr) unused_.insert(key);
    const bool has_pair = held("prompt") != nullptr && held("completion") != nullptr;
    const bool has_messages = held("messages") != nullptr;
    const json::value* const text_held = held("text");
    const bool fills_a_column = has_pair || has_messages;  // then an empty text is as absent
    const bool has_text =
        text_held != nullptr && !(fills_a_column && *text_held == json::value(""));
    if (has_pair + has_text + has_messages > 1)
      throw DataError(
          "want one of \"text\", \"prompt\" with \"completion\", and \"messages\", not several");
    if (has_text) {
      row_.completion = text("text");
    } else if (has_pair) {
      read_pair();
    } else if (has_messages) {
      read_chat("messages");
    } else if (held("conversations") != nullptr) {
      read_chat("conversations");
    } else if (held("instruction") != nullptr && first_held("output", "response") != nullptr) {
      read_instruction();
    } else {
      refuse();
    }
    if (row_.is_chat) read_variables();
    return std::move(row_);
  }

 private:
  /// Null where there is none, or nothing in it.
  const json::value* held(const char* key) const {
    const json::value* value = example_.if_contains(key);
    const bool is_nothing =
        value == nullptr || value->is_null() || (value->is_array() && value->get_array().empty());
    return is_nothing ? nullptr : value;
  }

  const json::value* first_held(const char* one, const char* other) const {
    return held(one) != nullptr ? held(one) : held(other);
  }

  std::string text(const char* key) const {
    const json::value* value = held(key);
    if (value == nullptr || !value->is_string())
      throw DataError(concat("\"", key, "\" is no text"));
    return std::string(value->get_string());
  }

  [[noreturn]] void refuse() const {
    if (held("chosen") != nullptr && held("rejected") != nullptr)
      throw DataError(
          "it is a pair of \"chosen\" and \"rejected\": train on such pairs with `hybrid finetune "
          "--objective dpo`, or give \"prompt\" with \"completion\"");
    std::string keys;
    for (const auto& [key, value] : example_) {
      if (keys.size() > 200) break;
      keys += concat(keys.empty() ? "" : ", ", '"', std::string_view(key), '"');
    }
    throw DataError(
        concat("want \"text\", or \"prompt\" with \"completion\", or \"messages\", a list of "
               "messages; got ",
               keys.empty() ? "no keys" : keys));
  }

  void read_pair() {
    if (held("prompt")->is_string() && held("completion")->is_string()) {
      row_.prompt = text("prompt");
      row_.completion = text("completion");
      return;
    }
    read_messages("prompt");
    row_.prompt_messages = row_.messages.size();
    read_messages("completion");
  }

  void read_chat(const char* key) {
    const json::value* system = held("system");
    if (system != nullptr && system->is_string() && !system->get_string().empty())
      add(json::object{{"role", "system"}, {"content", *system}});
    read_messages(key);
    const auto is_system = [](const json::value& message) {
      return message.get_object().at("role") == json::value("system");
    };
    const bool says_it_twice =
        row_.messages.size() > 1 && is_system(row_.messages[0]) && is_system(row_.messages[1]);
    if (system == nullptr || !says_it_twice) return;
    row_.messages.erase(row_.messages.begin());
    row_.trains.erase(row_.trains.begin());
    std::erase_if(row_.notable, [](const NormalRow::Notable& one) { return one.message == 0; });
    for (NormalRow::Notable& one : row_.notable) --one.message;
  }

  void read_instruction() {
    std::string asked = text("instruction");
    const json::value* input = first_held("input", "context");
    if (input != nullptr && input->is_string())
      if (!input->get_string().empty())
        asked += concat("\n\n", std::string_view(input->get_string()));
    if (const json::value* system = held("system"); system != nullptr && *system != json::value(""))
      add(json::object{{"role", "system"}, {"content", *system}});
    add(json::object{{"role", "user"}, {"content", asked}});
    add(json::object{{"role", "assistant"},
                     {"content", text(held("output") != nullptr ? "output" : "response")}});
  }

  void read_messages(const char* key) {
    const json::value* value = held(key);
    if (!value->is_array()) throw DataError(concat("\"", key, "\" is no list of messages"));
    for (const json::value& message : value->get_array()) add(message);
  }

  void add(const json::value& message) {
    NormalMessage normal = normal_message(message, form_, unused_);
    for (auto& [name, text] : normal.notable)
      row_.notable.push_back({row_.messages.size(), name, std::move(text)});
    row_.messages.push_back(std::move(normal.message));
    row_.trains.push_back(normal.trains);
    row_.is_chat = true;
  }

  void read_variables() {
    json::value tools = normal_tools(example_.if_contains("tools"));
    if (tools.is_null() && held("functions") != nullptr) {  // before tools were of several types
      tools = normal_tools(held("functions"));
      if (json::array* const all = tools.if_array()) {
        for (json::value& tool : *all)
          tool = json::object{{"type", "function"}, {"function", std::move(tool)}};
      }
    }
    row_.variables["tools"] = std::move(tools);
    const json::value* documents = held("documents");
    row_.variables["documents"] = documents == nullptr ? json::value() : *documents;
    const json::value* more = held("chat_template_kwargs");
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
