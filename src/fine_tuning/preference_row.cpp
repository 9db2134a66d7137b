#include "src/fine_tuning/preference_row.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

/// A list of messages from a list, or from one message.
json::array as_messages(const json::value& value) {
  return value.is_array() ? value.get_array() : json::array{value};
}

bool is_of(const json::value& message, std::initializer_list<const char*> speakers) {
  const json::object* object = message.if_object();
  if (object == nullptr) return false;
  for (const char* key : {"role", "from"}) {
    const json::value* speaker = object->if_contains(key);
    const auto is_speaker = [&](const char* name) { return *speaker == json::value(name); };
    if (speaker != nullptr && std::ranges::any_of(speakers, is_speaker)) return true;
  }
  return false;
}

/// How many messages both begin with; of each at least one is left.
std::size_t common_messages(const json::array& one, const json::array& other) {
  const std::size_t most = std::min(one.size(), other.size());
  std::size_t count = 0;
  while (count + 1 < most && one[count] == other[count]) ++count;
  return count;
}

/// Bytes that both begin with, in whole characters; a space at their end belongs to what follows.
std::size_t common_bytes(std::string_view one, std::string_view other) {
  std::size_t count = 0;
  while (count < std::min(one.size(), other.size()) && one[count] == other[count]) ++count;
  while (count > 0 && count < one.size() && is_continuation(one[count])) --count;
  return count > 0 && one[count - 1] == ' ' ? count - 1 : count;
}

class PreferenceRow {
 public:
  explicit PreferenceRow(const Preference& given)
      : given_(given), chosen_(given.chosen), rejected_(given.rejected), prompt_(given.prompt) {}

  ShapedRow run() {
    if (chosen_ == rejected_)
      throw DataError("its \"chosen\" and \"rejected\" are equal, so it prefers nothing");
    const auto is_text = [](const json::value& value) { return value.is_string(); };
    const auto is_list = [](const json::value& value) {
      return value.is_array() || value.is_object();
    };
    if (is_text(chosen_) && is_text(rejected_)) {
      split_texts();
    } else if (is_list(chosen_) && is_list(rejected_)) {
      split_messages();
    } else {
      throw DataError("\"chosen\" and \"rejected\" are not both texts, or both lists of messages");
    }
    return {RowShape::kPreference, half(chosen_), half(rejected_), chosen_columns_};
  }

 private:
  /// Texts; under a prompt of messages each is what the assistant says.
  void split_texts() {
    chosen_columns_ = prompt_ ? "completion=chosen" : "text=chosen";
    if (prompt_ && prompt_->is_array()) {
      for (json::value* half : {&chosen_, &rejected_})
        *half = json::array{json::object{{"role", "assistant"}, {"content", *half}}};
      return;
    }
    if (prompt_) return;
    const std::string one(chosen_.get_string()), other(rejected_.get_string());
    const std::size_t common = common_bytes(one, other);
    if (common == 0) refuse_without_prompt();
    prompt_ = one.substr(0, common);
    chosen_ = one.substr(common);
    rejected_ = other.substr(common);
  }

  [[noreturn]] void refuse_without_prompt() const {
    throw DataError(concat("\"chosen\" and \"rejected\" have no prompt, and do not begin alike; ",
                           given_.unnamed.empty()
                               ? "write \"prompt\": \"\" in a row without a question"
                               : concat("--columns prompt=KEY names it, such as one of ",
                                        given_.unnamed.substr(0, 200))));
  }

  void split_messages() {
    json::array chosen = as_messages(chosen_), rejected = as_messages(rejected_);
    const bool are_whole = !chosen.empty() && is_of(chosen.front(), {"system", "user", "human"});
    chosen_columns_ = given_.is_instruction ? "" : "completion=chosen";
    if (!prompt_ || are_whole) {
      const std::size_t common = common_messages(chosen, rejected);
      if (common == 0 && !prompt_) refuse_without_prompt();
      if (common == 0)
        throw DataError(
            "\"chosen\" and \"rejected\" repeat the prompt, and do not begin alike, so they do not "
            "answer the same");
      chosen_columns_ =
          concat("messages=chosen", given_.has_conversations ? ",conversations=" : "");
      prompt_ = json::array(chosen.begin(), chosen.begin() + common);
      chosen.erase(chosen.begin(), chosen.begin() + common);
      rejected.erase(rejected.begin(), rejected.begin() + common);
    } else if (prompt_->is_string()) {
      prompt_ = json::array{json::object{{"role", "user"}, {"content", *prompt_}}};
    }
    chosen_ = std::move(chosen);
    rejected_ = std::move(rejected);
  }

  json::object half(const json::value& completion) const {
    json::object half = given_.beside;
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
