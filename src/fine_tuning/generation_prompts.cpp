#include "src/fine_tuning/generation_prompts.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

/// Roles before an answer for which a generation prompt is asked for.
constexpr std::size_t kMostRoles = 16;

/// A chat of one message, which the user says.
json::array asked(json::value content) {
  return {json::object{{"role", "user"}, {"content", std::move(content)}}};
}

}  // namespace

const ChatTemplate& template_of(const ExampleFormat& format, const json::object& variables) {
  const json::value* tools = variables.if_contains("tools");
  return format.chat.template_for(tools != nullptr && !tools->is_null());
}

RenderedChat rendered(const ExampleFormat& format, const json::object& variables,
                      json::array messages, bool add_generation_prompt) {
  const ChatTemplate& source = template_of(format, variables);
  json::object all;
  for (const auto& [name, token] : format.chat.special_tokens) all[name] = token;
  for (const auto& [name, value] : variables) all[name] = value;
  all["messages"] = std::move(messages);
  all["add_generation_prompt"] = add_generation_prompt;
  return source.render(all, format.now);
}

json::array first_messages(const NormalRow& row, std::size_t count) {
  const auto begin = row.messages.begin();
  return json::array(begin, begin + static_cast<std::ptrdiff_t>(count));
}

std::optional<std::string> GenerationPrompts::before(std::size_t i) {
  const std::string before =
      i == 0 ? "" : std::string(row_.messages[i - 1].get_object().at("role").get_string());
  if (prompts_.size() == kMostRoles && !prompts_.contains(before)) return {};
  const auto [entry, is_new] = prompts_.try_emplace(before);
  if (!is_new) return entry->second;
  if (i > 0) entry->second = behind(first_messages(row_, i));
  if (!entry->second) {
    static constexpr const char* kAny = "Hello";
    const bool as_parts = i + 1 <= row_.messages.size() && has_parts();
    entry->second = behind(
        asked(as_parts ? json::value(json::array{json::object{{"type", "text"}, {"text", kAny}}})
                       : json::value(kAny)));
  }
  return entry->second;
}

bool GenerationPrompts::has_parts() const {
  return std::ranges::any_of(row_.messages, [](const json::value& one) {
    return one.get_object().at("content").is_array();
  });
}

std::optional<std::string> GenerationPrompts::behind(const json::array& messages) const {
  try {
    const RenderedChat with = rendered(format_, row_.variables, messages, true);
    const std::string without = rendered(format_, row_.variables, messages, false).text;
    const bool goes_on = with.text.starts_with(without);
    std::size_t end = 0;  // of what the loop over messages wrote
    for (const auto& part : with.parts) end = std::max(end, part.span.end);
    if (goes_on && (end == 0 || without.size() < end)) end = without.size();
    if (goes_on || end > 0) return with.text.substr(end);
  } catch (const DataError&) {  // such a chat is refused
  }
  return {};
}

}  // namespace hybrid_trainer
