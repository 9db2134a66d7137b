#include "row_tokens.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

using Tokens = std::vector<std::int32_t>;

bool begins_with(const Tokens& whole, const Tokens& start) {
  return start.size() <= whole.size() && std::equal(start.begin(), start.end(), whole.begin());
}

class RowMaker {
 public:
  RowMaker(const json::object& example, const ExampleFormat& format)
      : example_(example), format_(format) {}

  ExampleRow run() {
    const bool has_pair = example_.contains("prompt") && example_.contains("completion");
    const bool has_text = example_.contains("text"), has_messages = example_.contains("messages");
    if (has_pair + has_text + has_messages != 1)
      throw DataError("want one of \"text\", \"prompt\" with \"completion\", or \"messages\"");
    if (has_text) {
      learn_text("", text("text"));
    } else if (has_messages) {
      learn_chat(messages("messages"));
    } else if (example_.at("prompt").is_string() && example_.at("completion").is_string()) {
      learn_text(text("prompt"), text("completion"));
    } else {
      learn_answer(messages("prompt"), messages("completion"));
    }
    cut();
    check_vocabulary();
    return std::move(row_);
  }

 private:
  Tokens encoded(std::string_view text) const {
    return format_.tokenizer.encode(text, ControlText::kAsTokens);
  }

  /// With the tokenizer's own beginning, unless the text spells it.
  Tokens encoded_document(std::string_view text) const {
    Tokens tokens = encoded(text);
    const Tokens start = format_.tokenizer.template_start();
    if (!begins_with(tokens, start)) tokens.insert(tokens.begin(), start.begin(), start.end());
    return tokens;
  }

  std::string text(const char* key) const {
    const json::string* held = example_.at(key).if_string();
    if (held == nullptr) throw DataError(concat("\"", key, "\" is no text"));
    return std::string(*held);
  }

  json::array messages(const char* key) const {
    const json::array* held = example_.at(key).if_array();
    if (held == nullptr || held->empty())
      throw DataError(concat("\"", key, "\" is no list of messages"));
    json::array messages = *held;
    for (json::value& message : messages) {
      const json::object* object = message.if_object();
      const json::value* role = object == nullptr ? nullptr : object->if_contains("role");
      if (role == nullptr || !role->is_string())
        throw DataError(concat("\"", key, "\" holds a message without a role"));
      name_reasoning(message.get_object());
    }
    return messages;
  }

  /// As transformers, under each name that templates read it by.
  static void name_reasoning(json::object& message) {
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
      const json::value* found = message.if_contains(key);
      if (found == nullptr || found->is_null()) continue;
      const json::value reasoning = *found;
      if (!message.contains("thinking")) message["thinking"] = reasoning;
      message["reasoning_content"] = reasoning;
      return;
    }
  }

  /// A text that goes on from another, to the end of the document.
  void learn_text(const std::string& before, std::string text) {
    std::string end = format_.chat.special_token("eos_token");
    if (const auto id = format_.tokenizer.end_of_text(); end.empty() && id)
      end = format_.tokenizer.token_bytes(*id);
    if (!text.ends_with(end)) text += end;
    row_.tokens = encoded_document(before + text);
    const Tokens prompt = before.empty() ? Tokens() : encoded_document(before);
    if (!begins_with(row_.tokens, prompt))
      throw DataError(
          "the prompt's tokens are not how the tokens of the whole begin; where it ends with a "
          "space, begin the completion with it instead");
    learn_behind(prompt, "the prompt's tokens");
  }

  void learn_answer(const json::array& prompt, const json::array& answer) {
    json::array all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    row_.tokens = encoded(rendered(all, false).text);
    learn_behind(encoded(rendered(prompt, true).text), "the prompt's tokens");
  }

  void learn_chat(const json::array& messages) {
    const RenderedChat chat = rendered(messages, false);
    row_.tokens = encoded(chat.text);
    row_.learnt.assign(row_.tokens.size(), false);
    if (format_.chat.chat_template->marks_generation()) {
      for (const auto& [begin, end] : chat.generated) {
        learn(encoded(std::string_view(chat.text).substr(0, begin)),
              encoded(std::string_view(chat.text).substr(0, end)),
              "the tokens up to a generation block");
      }
      return;
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].get_object().at("role") != json::value("assistant")) continue;
      const auto first = [&](std::size_t count) {
        const auto end = messages.begin() + static_cast<std::ptrdiff_t>(count);
        return json::array(messages.begin(), end);
      };
      learn(encoded(rendered(first(i), true).text), encoded(rendered(first(i + 1), false).text),
            concat("the tokens of its first ", i + 1, " messages"));
    }
  }

  RenderedChat rendered(const json::array& messages, bool add_generation_prompt) const {
    if (!format_.chat.chat_template) throw DataError("the model's folder has no chat template");
    json::object variables;
    for (const auto& [name, token] : format_.chat.special_tokens) variables[name] = token;
    const json::value* tools = example_.if_contains("tools");
    variables["tools"] = tools == nullptr ? json::value() : *tools;
    variables["documents"] = nullptr;
    if (const json::value* more = example_.if_contains("chat_template_kwargs");
        more != nullptr && !more->is_null()) {
      if (!more->is_object()) throw DataError("\"chat_template_kwargs\" is no object");
      for (const auto& [name, value] : more->get_object()) variables[name] = value;
    }
    variables["messages"] = messages;
    variables["add_generation_prompt"] = add_generation_prompt;
    return format_.chat.chat_template->render(variables, format_.now);
  }

  void learn_behind(const Tokens& before, const std::string& what) {
    row_.learnt.assign(row_.tokens.size(), false);
    learn(before, row_.tokens, what);
  }

  /// Learns what `through` has beyond `before`, if the row begins with both.
  void learn(const Tokens& before, const Tokens& through, const std::string& what) {
    if (!begins_with(row_.tokens, through) || !begins_with(through, before))
      throw DataError(concat(what, " are not how the tokens of the whole begin"));
    std::fill(row_.learnt.begin() + static_cast<std::ptrdiff_t>(before.size()),
              row_.learnt.begin() + static_cast<std::ptrdiff_t>(through.size()), true);
  }

  void cut() {
    if (!row_.learnt.empty()) row_.learnt.front() = false;
    const auto found = std::find(row_.learnt.begin(), row_.learnt.end(), true);
    if (found == row_.learnt.end()) throw DataError("nothing in it is learnt");
    const std::int64_t first = found - row_.learnt.begin();
    if (first >= format_.longest)
      throw DataError(concat("what is learnt begins at token ", first + 1,
                             " and is cut away whole: the longest length is ", format_.longest));
    row_.left_out = std::max<std::int64_t>(0, std::ssize(row_.tokens) - format_.longest);
    row_.tokens.resize(row_.tokens.size() - static_cast<std::size_t>(row_.left_out));
    row_.learnt.resize(row_.tokens.size());
  }

  void check_vocabulary() const {
    const std::int32_t largest = *std::max_element(row_.tokens.begin(), row_.tokens.end());
    if (format_.vocabulary > 0 && largest >= format_.vocabulary)
      throw DataError(concat("it has the token ", format_.tokenizer.token_bytes(largest),
                             ", which is none of the model's ", format_.vocabulary));
  }

  const json::object& example_;
  const ExampleFormat& format_;
  ExampleRow row_;
};

}  // namespace

ExampleRow tokens_of_example(const json::object& example, const ExampleFormat& format) {
  return RowMaker(example, format).run();
}

}  // namespace hybrid_trainer
