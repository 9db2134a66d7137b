#include "hybrid_trainer/chat/content_form.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr const char* kQuestion = "What is this?";

/// Whether the template writes the question if a message of the user has it so, and no list as
/// Python prints it.
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

bool takes_parts_alone(const ChatFiles& chat, std::time_t now) {
  return chat.chat_template && !writes_question(chat, kQuestion, now) &&
         writes_question(chat, json::array{json::object{{"type", "text"}, {"text", kQuestion}}},
                         now);
}

}  // namespace hybrid_trainer
