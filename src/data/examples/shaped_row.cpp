#include "src/data/examples/shaped_row.h"

#include "hybrid_trainer/core/error.h"
#include "src/data/examples/normal_row.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kLongestList = std::size_t{64} << 20;

constexpr std::array kShapeKeys{"text",        "prompt", "completion", "messages", "conversations",
                                "instruction", "input",  "output",     "context",  "response",
                                "history",     "chosen", "rejected"};

bool is_shape_key(std::string_view key) {
  return std::ranges::find(kShapeKeys, key) != kShapeKeys.end();
}

bool is_answer(const json::value& message) { return speaker_of(message) == "assistant"; }

bool is_empty_text(const json::value& value) {
  return value.is_string() && value.get_string().empty();
}

/// Returns whether a text is a list of objects in Python's notation.
bool is_python_list(std::string_view text) {
  text = trimmed(text);
  return text.starts_with("[{'") && text.ends_with("}]");
}

[[noreturn]] void refuse_python_list(std::string_view key) {
  throw DataError(concat("\"", key, "\" is a list in Python's format, not JSON; write it with ",
                         "json.dumps(", key, ")"));
}

/// Parses a list of messages in JSON. Returns nullopt for any other text.
std::optional<json::value> messages_in(std::string_view text) {
  if (!trimmed(text).starts_with("[")) return {};
  WideIntegers wide;
  std::optional<json::value> list;
  try {
    list = parse_python_json(text, "", kLongestList, wide);
  } catch (const DataError&) {
    return {};
  }
  const json::array* const items = list->if_array();
  if (items == nullptr || items->empty() ||
      !std::ranges::all_of(*items, [](const json::value& one) { return !speaker_of(one).empty(); }))
    return {};
  check_integers(*list, wide);
  return list;
}

/// Parses cells of a table that contain lists of messages as JSON text.
void read_lists(json::object& row) {
  for (const char* key : {"prompt", "completion", "chosen", "rejected"}) {
    json::value* const value = row.if_contains(key);
    if (value == nullptr || !value->is_string()) continue;
    const std::string_view text = value->get_string();
    const bool has_role = text.find("'role':") != text.npos || text.find("'from':") != text.npos;
    if (is_python_list(text) && has_role) refuse_python_list(key);
    if (auto list = messages_in(text)) *value = *std::move(list);
  }
  for (const char* key : {"messages", "conversations", "history"}) {
    json::value* const value = row.if_contains(key);
    if (value == nullptr || !value->is_string()) continue;
    if (value->get_string().empty()) {
      *value = nullptr;
      continue;
    }
    WideIntegers wide;
    try {
      *value = parse_python_json(value->get_string(), concat("\"", key, "\""), kLongestList, wide);
    } catch (const DataError&) {
      if (is_python_list(value->get_string())) refuse_python_list(key);
      throw DataError(concat("\"", key, "\" is a string, want a list or the JSON text of a list"));
    }
    check_integers(*value, wide);
  }
}

class ShapeReader {
 public:
  ShapeReader(json::object example, const RowReading& reading, const WideIntegers& wide)
      : row_(std::move(example)), reading_(reading), wide_(wide) {
    read_lists(row_);
    for (const char* key : kContextKeys)
      if (const json::value* value = row_.if_contains(key)) made_[key] = *value;
  }

  ShapedRow run() {
    const RowShape shape = only_shape();
    switch (shape) {
      case RowShape::kPreference: return preference();
      case RowShape::kAlpaca: take_answered(); break;
      case RowShape::kPair: {
        const char* const list = prompt_list();
        made_["prompt"] = content_under(list != nullptr ? list : "prompt");
        made_["completion"] = content_under("completion");
        break;
      }
      case RowShape::kMessages: made_["messages"] = *take("messages"); break;
      case RowShape::kShareGpt: made_["messages"] = *take("conversations"); break;
      case RowShape::kText:
      case RowShape::kClip: made_["text"] = content_under("text"); break;
    }
    return {.shape = shape, .example = std::move(made_), .used = std::move(used_)};
  }

 private:
  const json::value* take(const char* key) {
    const json::value* const value = held(row_, key);
    if (value != nullptr) used_.insert(key);
    return value;
  }

  /// Returns the value of a key; converts values except lists and objects to text.
  json::value content_under(const char* key) {
    const json::value& value = *take(key);
    return value.is_array() || value.is_object() ? value : json::value(text_of(value, key));
  }

  std::string text_of(const json::value& value, const char* key) const {
    check_integers(value, wide_);
    return text_in_row(value, key);
  }

  std::string text_under(const char* key) {
    const json::value* const value = take(key);
    return value == nullptr ? "" : text_of(*value, key);
  }

  RowShape only_shape() const {
    const auto has = [&](const char* key) { return held(row_, key) != nullptr; };
    if (reading_.pairs && has("chosen") && has("rejected")) return RowShape::kPreference;
    struct Found {
      RowShape shape;
      std::string keys;
    };
    std::vector<Found> found;
    const bool is_preference = has("chosen") && has("rejected");
    const char* const list = prompt_list();
    const auto is_prompt = [&](std::string_view key) { return list != nullptr && key == list; };
    if (is_preference) found.push_back({RowShape::kPreference, "chosen with rejected"});
    if (has("prompt") && has("completion"))
      found.push_back({RowShape::kPair, "prompt with completion"});
    if (list != nullptr) found.push_back({RowShape::kPair, concat(list, " with completion")});
    if (has("messages") && !is_prompt("messages") &&
        !(is_preference && is_prompt_of_preference("messages")))
      found.push_back({RowShape::kMessages, "messages"});
    if (has("conversations") && !is_prompt("conversations") &&
        !(is_preference && is_prompt_of_preference("conversations")))
      found.push_back({RowShape::kShareGpt, "conversations"});
    if (const char* const answer = answer_key(); has("instruction") && answer != nullptr)
      found.push_back({RowShape::kAlpaca, concat("instruction with ", answer)});
    const bool has_text = has("text") && !(!found.empty() && is_empty_text(row_.at("text")));
    if (has_text) found.push_back({RowShape::kText, "text"});
    if (found.empty()) refuse();
    if (found.size() > 1) {
      const std::string left_out = found.back().keys.substr(0, found.back().keys.find(' '));
      throw DataError(concat("it has two shapes, ", found[0].keys, " and ", found[1].keys,
                             "; leave one out, for example with --columns ", left_out, "="));
    }
    return found.front().shape;
  }

  /// Returns whether the list is a prompt that the chosen answer continues.
  bool is_prompt_of_preference(const char* key) const {
    const json::value* const list = held(row_, key);
    return !list->is_array() || !is_answer(list->get_array().back());
  }

  /// Converts a preference. Its prompt is "prompt", a list of messages or an instruction; otherwise
  /// the answers include the prompt.
  ShapedRow preference() {
    std::optional<json::value> prompt;
    const bool is_instruction =
        held(row_, "instruction") != nullptr && held(row_, "prompt") == nullptr;
    if (is_instruction) prompt = asked();
    if (held(row_, "prompt") != nullptr && !prompt) prompt = content_under("prompt");
    for (const char* key : {"conversations", "messages"})
      if (!prompt && held(row_, key) != nullptr && is_prompt_of_preference(key))
        prompt = *take(key);
    const json::value chosen = content_under("chosen"), rejected = content_under("rejected");
    std::string unnamed;  // keys of texts that may be the prompt
    for (const auto& [key, value] : row_)
      if (value.is_string() && !used_.contains(key))
        unnamed += concat(unnamed.empty() ? "\"" : ", \"", std::string_view(key), '"');
    ShapedRow row = preference_row({.shared_members = made_,
                                    .chosen = chosen,
                                    .rejected = rejected,
                                    .prompt = std::move(prompt),
                                    .is_instruction = is_instruction,
                                    .has_conversations = row_.contains("conversations"),
                                    .unnamed = unnamed,
                                    .is_token_prefix = reading_.is_token_prefix});
    row.used = std::move(used_);
    return row;
  }

  /// Returns the key of the message list that the row's completion continues, or null.
  const char* prompt_list() const {
    const json::value* const completion = held(row_, "completion");
    if (completion == nullptr || is_empty_text(*completion) || held(row_, "prompt") != nullptr)
      return nullptr;
    for (const char* key : {"messages", "conversations"}) {
      const json::value* const list = held(row_, key);
      if (list != nullptr && list->is_array() && !is_answer(list->get_array().back())) return key;
    }
    return nullptr;
  }

  const char* answer_key() const {
    const bool is_pair = held(row_, "prompt") != nullptr;
    const char* empty = nullptr;
    for (const char* key : {"output", "response", "completion"}) {
      const json::value* const value = held(row_, key);
      if (value == nullptr || (is_pair && key == std::string_view("completion"))) continue;
      if (!is_empty_text(*value)) return key;
      if (empty == nullptr) empty = key;
    }
    return empty;
  }

  /// Returns a description of the missing part of a shape, or "".
  std::string missing_part() const {
    const auto has = [&](const char* key) { return held(row_, key) != nullptr; };
    if (has("chosen") != has("rejected"))
      return concat(
          "\"", has("chosen") ? "rejected" : "chosen", "\" is missing or empty, but the row has \"",
          has("chosen") ? "chosen" : "rejected", "\"; want both, the better and the worse answer");
    std::string empty;
    bool has_value_key = false;
    for (const auto& [key, value] : row_) {
      const bool is_nothing = held(row_, std::string(key).c_str()) == nullptr;
      has_value_key = has_value_key || !(is_nothing || is_empty_text(value));
      if (is_nothing && is_shape_key(key))
        empty += concat(empty.empty() ? "" : ", ", '"', std::string_view(key), '"');
    }
    const std::string lacks = empty.empty() ? "" : "empty values for " + empty;
    if (row_.empty() || has_value_key) return lacks;
    return lacks.empty() ? "it is empty" : "it is empty: " + lacks;
  }

  [[noreturn]] void refuse() const {
    if (const std::string problem = missing_part(); !problem.empty()) throw DataError(problem);
    std::string keys;
    for (const auto& [key, value] : row_) {
      if (keys.size() > 200) break;
      const bool is_nothing = value.is_null() || (value.is_array() && value.get_array().empty());
      keys += concat(keys.empty() ? "" : ", ", '"', std::string_view(key), '"',
                     is_nothing ? " (empty)" : "");
    }
    throw DataError(concat(
        reading_.pairs ? "want \"prompt\", \"chosen\" and \"rejected\""
                       : "want \"text\", or \"prompt\" with \"completion\", or \"messages\", a "
                         "list of messages",
        ", or another shape of docs/FINETUNING_DATA.md; got ", keys.empty() ? "no keys" : keys,
        keys.empty() ? "" : concat("; rename them with --columns ", columns_of(reading_, "KEY"))));
  }

  /// Returns the turns before the instruction: pairs of question and answer.
  json::array history() {
    const json::value* const turns = take("history");
    if (turns == nullptr) return {};
    const auto is_turn = [](const json::value& turn) {
      const json::array* const texts = turn.if_array();
      return texts != nullptr && texts->size() == 2 && (*texts)[0].is_string() &&
             (*texts)[1].is_string();
    };
    if (!turns->is_array() || !std::ranges::all_of(turns->get_array(), is_turn))
      throw DataError("\"history\" is not a list of pairs of strings");
    return turns->get_array();
  }

  /// Joins instruction and "input", which Dolly calls "context".
  std::string instruction(const char* between) {
    const std::string text = text_under("instruction");
    std::string input = text_under("input");
    if (input.empty()) input = text_under("context");
    return text.empty() || input.empty() ? text + input : text + between + input;
  }

  /// Returns the instruction: messages, or a text that ends with a line end.
  json::value asked() {
    const std::string system = text_under("system");
    made_.erase("system");
    if (!reading_.has_template) {
      std::string text = system.empty() ? "" : system + "\n";
      for (const json::value& turn : history())
        for (const json::value& said : turn.get_array())
          text += std::string(said.get_string()) + "\n";
      return json::value(text + instruction("\n") + "\n");
    }
    json::array messages;
    const auto add = [&](const char* role, const std::string& content) {
      messages.push_back(json::object{{"role", role}, {"content", content}});
    };
    if (!system.empty()) add("system", system);
    for (const json::value& turn : history()) {
      add("user", std::string(turn.at(0).get_string()));
      add("assistant", std::string(turn.at(1).get_string()));
    }
    add("user", instruction("\n\n"));
    return messages;
  }

  void take_answered() {
    const std::string answer = text_under(answer_key());
    json::value before = asked();
    if (!reading_.has_template) {
      made_["prompt"] = std::move(before);
      made_["completion"] = answer;
      return;
    }
    before.get_array().push_back(json::object{{"role", "assistant"}, {"content", answer}});
    made_["messages"] = std::move(before);
  }

  json::object row_;
  const RowReading reading_;
  const WideIntegers& wide_;
  json::object made_;           // the result
  std::set<std::string> used_;  // members of the row
};

}  // namespace

const char* name_of(RowShape shape) {
  static constexpr const char* kNames[] = {
      "text", "prompt and completion", "messages", "sharegpt", "alpaca", "preference", "clips"};
  return kNames[static_cast<std::size_t>(shape)];
}

const std::vector<std::string>& keys_of_examples() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all(kShapeKeys.begin(), kShapeKeys.end());
    all.insert(all.end(), kContextKeys.begin(), kContextKeys.end());
    return all;
  }();
  return keys;
}

std::string pair_columns(bool has_template, std::string_view column) {
  return has_template ? concat("instruction=", column, ",output=", column)
                      : concat("prompt=", column, ",completion=", column);
}

std::string columns_of(const RowReading& reading, std::string_view column) {
  if (!reading.pairs) return pair_columns(reading.has_template, column);
  return concat("prompt=", column, ",chosen=", column, ",rejected=", column);
}

const json::value* held(const json::object& row, const char* key) {
  const json::value* value = row.if_contains(key);
  const bool is_nothing =
      value == nullptr || value->is_null() || (value->is_array() && value->get_array().empty());
  return is_nothing ? nullptr : value;
}

ShapedRow shaped_row(json::object example, const RowReading& reading, const WideIntegers& wide) {
  return ShapeReader(std::move(example), reading, wide).run();
}

}  // namespace hybrid_trainer
