#include "hybrid_trainer/core/error.h"
#include "src/data/examples/normal_row.h"
#include "src/data/examples/shaped_row.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

json::array as_messages(const json::value& value) {
  return value.is_array() ? value.get_array() : json::array{value};
}

std::optional<std::string> text_of(const json::value& message) {
  const json::object* const object = message.if_object();
  for (const char* key : {"content", "value"}) {
    const json::value* const held = object == nullptr ? nullptr : object->if_contains(key);
    if (held != nullptr && held->is_string()) return std::string(trimmed(held->get_string()));
  }
  return {};
}

bool is_same(const json::value& one, const json::value& other) {
  const auto text = text_of(one);
  return one == other || (text && text == text_of(other) && speaker_of(one) == speaker_of(other));
}

/// Returns the number of messages in the longest end of `prompt` that also begins `chat`.
std::size_t overlap(const json::array& prompt, const json::array& chat) {
  for (std::size_t count = std::min(prompt.size(), chat.size()); count > 0; --count)
    if (std::equal(prompt.end() - static_cast<std::ptrdiff_t>(count), prompt.end(), chat.begin(),
                   is_same))
      return count;
  return 0;
}

/// Returns the number of common leading messages, at most one less than either list has.
std::size_t common_messages(const json::array& one, const json::array& other) {
  const std::size_t most = std::min(one.size(), other.size());
  std::size_t count = 0;
  while (count + 1 < most && one[count] == other[count]) ++count;
  return count;
}

/// Returns the number of common leading bytes, in whole characters and without a final space.
std::size_t common_bytes(std::string_view one, std::string_view other) {
  std::size_t count = 0;
  while (count < std::min(one.size(), other.size()) && one[count] == other[count]) ++count;
  while (count > 0 && count < one.size() && is_continuation(one[count])) --count;
  return count > 0 && one[count - 1] == ' ' ? count - 1 : count;
}

/// Returns the length of the first `count` bytes without the last word and the blanks before it.
std::size_t without_last_word(std::string_view text, std::size_t count) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto is_blank = [&](std::size_t at) { return kBlank.find(text[at]) != kBlank.npos; };
  while (count > 0 && !is_blank(count - 1)) --count;
  while (count > 0 && is_blank(count - 1)) --count;
  return count;
}

class PreferenceRow {
 public:
  explicit PreferenceRow(const Preference& given)
      : given_(given), chosen_(given.chosen), rejected_(given.rejected), prompt_(given.prompt) {}

  ShapedRow run() {
    if (chosen_ == rejected_)
      throw DataError("\"chosen\" and \"rejected\" are equal, so there is no preference");
    const auto is_text = [](const json::value& value) { return value.is_string(); };
    const auto is_list = [](const json::value& value) {
      return value.is_array() || value.is_object();
    };
    if (is_text(chosen_) && is_text(rejected_)) {
      split_texts();
    } else if (is_list(chosen_) && is_list(rejected_)) {
      split_messages();
    } else {
      throw DataError(
          "\"chosen\" and \"rejected\" must both be strings, or both lists of messages");
    }
    return {RowShape::kPreference, half(chosen_), half(rejected_), chosen_columns_};
  }

 private:
  /// Splits two texts into their common beginning, the prompt, and completions. If the prompt is a
  /// list of messages, converts each text to an assistant message instead.
  void split_texts() {
    chosen_columns_ = prompt_ ? "completion=chosen" : "text=chosen";
    if (prompt_ && prompt_->is_array()) {
      for (json::value* half : {&chosen_, &rejected_})
        *half = json::array{json::object{{"role", "assistant"}, {"content", *half}}};
      return;
    }
    if (prompt_) return;
    const std::string one(chosen_.get_string()), other(rejected_.get_string());
    std::size_t common = common_bytes(one, other);
    if (common == std::min(one.size(), other.size()))  // otherwise one answer would be empty
      if (const std::size_t shorter = without_last_word(one, common); shorter > 0) common = shorter;
    const auto is_split = [&](const std::string& text) {
      return !given_.is_token_prefix || given_.is_token_prefix(text.substr(0, common), text);
    };
    while (common > 0 && !(is_split(one) && is_split(other)))
      common = without_last_word(one, common);
    if (common == 0) refuse_without_prompt();
    prompt_ = one.substr(0, common);
    chosen_ = one.substr(common);
    rejected_ = other.substr(common);
  }

  [[noreturn]] void refuse_without_prompt() const {
    throw DataError(concat("\"chosen\" and \"rejected\" have no prompt and no common beginning; ",
                           given_.unnamed.empty()
                               ? "write \"prompt\": \"\" in a row without a question"
                               : concat("name it with --columns prompt=KEY, such as one of ",
                                        given_.unnamed.substr(0, 200))));
  }

  void split_messages() {
    json::array chosen = as_messages(chosen_), rejected = as_messages(rejected_);
    const std::string first = chosen.empty() ? "" : speaker_of(chosen.front());
    const bool are_whole = first == "system" || first == "developer" || first == "user";
    chosen_columns_ = given_.is_instruction ? "" : "completion=chosen";
    if (!prompt_ || are_whole) {
      const std::size_t common = common_messages(chosen, rejected);
      if (common == 0 && !prompt_) refuse_without_prompt();
      if (common == 0)
        throw DataError(
            "\"chosen\" and \"rejected\" contain different prompts in addition to \"prompt\"; want "
            "answers to the same prompt");
      const auto begin = chosen.begin();
      json::array shared(begin, begin + static_cast<std::ptrdiff_t>(common));
      chosen.erase(begin, begin + static_cast<std::ptrdiff_t>(common));
      rejected.erase(rejected.begin(), rejected.begin() + static_cast<std::ptrdiff_t>(common));
      const std::size_t own = shared.size();
      prompt_ = prompt_ ? joined(as_prompt(*prompt_), std::move(shared), chosen.front())
                        : std::move(shared);
      chosen_columns_ =
          prompt_->get_array().size() == own
              ? concat("messages=chosen", given_.has_conversations ? ",conversations=" : "")
              : "";
    } else {
      prompt_ = as_prompt(*prompt_);
    }
    chosen_ = std::move(chosen);
    rejected_ = std::move(rejected);
  }

  static json::array as_prompt(const json::value& prompt) {
    if (!prompt.is_string()) return as_messages(prompt);
    return {json::object{{"role", "user"}, {"content", prompt}}};
  }

  /// Returns the prompt followed by `shared`, or only `shared` if it repeats the prompt. Puts a
  /// system message first. Throws DataError if a speaker would have two turns in a row.
  json::array joined(json::array prompt, json::array shared, const json::value& answer) const {
    const auto repeats = [&](const json::array& part) {
      return !std::ranges::search(shared, part, is_same).empty();
    };
    const auto is_repetition = [&](const json::value& message) {
      return text_of(message) == text_of(prompt.front());
    };
    const bool is_text = given_.prompt->is_string();
    if (repeats(prompt) || (is_text && std::ranges::any_of(shared, is_repetition))) return shared;
    const std::size_t count = overlap(prompt, shared);
    prompt.resize(prompt.size() - count);
    if (speaker_of(shared.front()) == "system" && speaker_of(prompt.front()) != "system") {
      prompt.insert(prompt.begin(), shared.front());
      shared.erase(shared.begin());
    }
    const json::value& next = shared.empty() ? answer : shared.front();
    if (speaker_of(prompt.back()) == speaker_of(next) || speaker_of(next) == "system")
      throw DataError(concat(
          "\"chosen\" and \"rejected\" neither repeat nor continue the prompt: it ends with ",
          json::serialize(prompt.back()).substr(0, 80), ", they begin with ",
          json::serialize(next).substr(0, 80), "; leave out one of them"));
    prompt.insert(prompt.end(), shared.begin(), shared.end());
    return prompt;
  }

  json::object half(const json::value& completion) const {
    json::object half = given_.shared_members;
    half["prompt"] = *prompt_;
    half["completion"] = completion;
    return half;
  }

  const Preference& given_;
  json::value chosen_, rejected_;
  std::optional<json::value> prompt_;
  std::string chosen_columns_;
};

}  // namespace

ShapedRow preference_row(const Preference& given) { return PreferenceRow(given).run(); }

}  // namespace hybrid_trainer
