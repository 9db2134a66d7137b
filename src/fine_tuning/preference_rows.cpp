#include "src/fine_tuning/preference_rows.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr const char* kWantedPair =
    "want a pair of answers, {\"prompt\": …, \"chosen\": …, \"rejected\": …}, texts or lists of "
    "messages";

/// Null where the key is absent, null or an empty list.
const json::value* held_in(const json::object& example, const char* key) {
  const json::value* value = example.if_contains(key);
  const bool is_absent =
      value == nullptr || value->is_null() || (value->is_array() && value->get_array().empty());
  return is_absent ? nullptr : value;
}

const json::value& answer_in(const json::object& example, const char* key) {
  const json::value* value = held_in(example, key);
  if (value == nullptr) throw DataError(concat("it has no \"", key, "\"; ", kWantedPair));
  if (value->is_string() || value->is_array()) return *value;
  throw DataError(concat("\"", key, "\" is no text and no list of messages"));
}

json::array said(const char* role, const json::value& content) {
  return {json::object{{"role", role}, {"content", content}}};
}

/// Whether a list of messages begins with one of the user or the system.
bool begins_with_prompt(const json::array& messages) {
  const json::object* first = messages.front().if_object();
  if (first == nullptr) return false;
  for (const char* key : {"role", "from"}) {
    const json::value* role = first->if_contains(key);
    if (role == nullptr) continue;
    return *role == json::value("user") || *role == json::value("human") ||
           *role == json::value("system");
  }
  return false;
}

/// Prompt and both answers.
struct Parts {
  json::value prompt, chosen, rejected;
};

/// Of texts: the prompt is how both begin, but for a space at its end, which then begins the answers.
Parts split_texts(const std::string& chosen, const std::string& rejected) {
  const auto alike = std::ranges::mismatch(chosen, rejected).in1 - chosen.begin();
  auto end = static_cast<std::size_t>(alike);
  while (end > 0 &&
         (static_cast<unsigned char>(chosen[std::min(end, chosen.size() - 1)]) & 0xC0) == 0x80)
    --end;  // not within a character
  if (end > 0 && chosen[end - 1] == ' ') --end;
  return {json::value(chosen.substr(0, end)), json::value(chosen.substr(end)),
          json::value(rejected.substr(end))};
}

/// Of messages: each answer keeps at least one.
Parts split_messages(const json::array& chosen, const json::array& rejected) {
  const std::size_t most = std::min(chosen.size(), rejected.size()) - 1;
  std::size_t end = 0;
  while (end < most && chosen[end] == rejected[end]) ++end;
  const auto from = static_cast<std::ptrdiff_t>(end);
  return {json::array(chosen.begin(), chosen.begin() + from),
          json::array(chosen.begin() + from, chosen.end()),
          json::array(rejected.begin() + from, rejected.end())};
}

Parts parts_of(const json::object& example) {
  const json::value &chosen = answer_in(example, "chosen"),
                    &rejected = answer_in(example, "rejected");
  if (chosen == rejected)
    throw DataError("\"chosen\" and \"rejected\" are the same, so nothing is to be preferred");
  const json::value* prompt = held_in(example, "prompt");
  const bool is_chat =
      chosen.is_array() || rejected.is_array() || (prompt != nullptr && prompt->is_array());
  if (!is_chat && prompt != nullptr) return {*prompt, chosen, rejected};
  if (!is_chat)
    return split_texts(std::string(chosen.get_string()), std::string(rejected.get_string()));
  const json::array of_chosen = chosen.is_array() ? chosen.get_array() : said("assistant", chosen);
  const json::array of_rejected =
      rejected.is_array() ? rejected.get_array() : said("assistant", rejected);
  const bool is_implicit =
      prompt == nullptr || (prompt->is_string() && begins_with_prompt(of_chosen));
  if (is_implicit) return split_messages(of_chosen, of_rejected);
  return {prompt->is_string() ? said("user", *prompt) : prompt->get_array(), of_chosen,
          of_rejected};
}

}  // namespace

PreferencePair preference_pair(const json::object& example) {
  Parts parts = parts_of(example);
  const bool has_no_prompt = parts.prompt.is_array() && parts.prompt.get_array().empty();
  if (has_no_prompt)
    throw DataError(
        "\"chosen\" and \"rejected\" do not begin with the same message, and there is no "
        "\"prompt\"");
  json::object rest = example;
  for (const char* key : {"prompt", "chosen", "rejected", "messages"}) rest.erase(key);
  PreferencePair pair{rest, std::move(rest)};
  pair.chosen["prompt"] = parts.prompt;
  pair.rejected["prompt"] = std::move(parts.prompt);
  pair.chosen["completion"] = std::move(parts.chosen);
  pair.rejected["completion"] = std::move(parts.rejected);
  return pair;
}

ExampleRow preference_row(const json::object& example, const WideIntegers& wide,
                          const ExampleFormat& format, RowMaker& maker) {
  const PreferencePair pair = preference_pair(example);
  const auto made = [&](const json::object& half, const char* name) {
    try {
      return maker.make(half, wide);
    } catch (const DataError& error) {
      throw DataError(concat("the ", name, " answer: ", error.what()));
    }
  };
  ExampleRow row = made(pair.chosen, "chosen");
  const ExampleRow rejected = made(pair.rejected, "rejected");
  if (row.tokens == rejected.tokens && row.learnt == rejected.learnt)
    throw DataError(
        "\"chosen\" and \"rejected\" have the same tokens, so nothing is to be preferred");
  const std::int64_t all =
      std::ssize(row.tokens) + row.left_out + std::ssize(rejected.tokens) + rejected.left_out - 2;
  if (all > format.longest - 1)
    throw DataError(concat("its two answers with their prompts take ", all,
                           " tokens, and a sequence holds ", format.longest - 1,
                           "; raise data.sequence_length"));
  row.rejected_at = std::ssize(row.tokens);
  row.tokens.insert(row.tokens.end(), rejected.tokens.begin(), rejected.tokens.end());
  row.learnt.insert(row.learnt.end(), rejected.learnt.begin(), rejected.learnt.end());
  row.answers_left_out += rejected.answers_left_out;
  return row;
}

}  // namespace hybrid_trainer
