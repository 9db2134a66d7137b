#pragma once

#include <boost/json.hpp>

#include "src/data/examples/example_rows.h"
#include "src/files/json.h"

namespace hybrid_trainer {

/// An example as normal_row reads it. It may also have members of kContextKeys.
struct ShapedRow {
  RowShape shape = RowShape::kText;
  boost::json::object example;
  /// The example with the rejected completion of a preference. `example` has the chosen completion.
  std::optional<boost::json::object> rejected{};
  std::string chosen_columns{};
  /// Members of the row from which `example` was made.
  std::set<std::string> used{};
};

/// Members that a chat of any shape may have. NormalRow::used contains those that the chat uses.
inline constexpr std::array kContextKeys{"system", "tools", "functions", "documents",
                                         "chat_template_kwargs"};

/// Returns whether the tokens of `text` begin with the tokens of `start`.
using IsTokenPrefix = std::function<bool(const std::string& start, const std::string& text)>;

struct RowReading {
  bool has_template = false;        // whether a chat template renders chats
  bool pairs = false;               // whether rows are preference pairs, regardless of other keys
  IsTokenPrefix is_token_prefix{};  // if null, every text is considered a prefix
};

/// Returns --columns to suggest for rows of unknown shape: "prompt=KEY,completion=KEY".
std::string columns_of(const RowReading& reading, std::string_view column);

/// Returns the value of a key, or null if it is absent, null or an empty list.
const boost::json::value* held(const boost::json::object& row, const char* key);

/// Determines the shape of an example and converts it. "messages" or "conversations" without a
/// final answer are the prompt of a "completion" in the same row. Rows of Alpaca and Dolly become
/// messages if there is a chat template. Otherwise they become a prompt with its parts on separate
/// lines. Numbers and Booleans become JSON texts. `wide` has the wide integers of the row's line.
/// Throws DataError if the example has no known shape or more than one, or if the chosen and the
/// rejected answer of a preference are equal.
ShapedRow shaped_row(boost::json::object example, const RowReading& reading,
                     const WideIntegers& wide = {});

/// Two answers to the same prompt. Each answer is a text, a list of messages, or one message.
struct Preference {
  const boost::json::object& shared_members;  // members that both answers share
  boost::json::value chosen, rejected;
  std::optional<boost::json::value> prompt{};
  bool is_instruction = false;     // whether the prompt consists of several members
  bool has_conversations = false;  // whether the row has a member "conversations"
  std::string unnamed{};           // names of other text members, for messages
  IsTokenPrefix is_token_prefix{};
};

/// Converts a preference to a prompt and a completion for each of its two answers. Without a prompt,
/// the common beginning of the answers is the prompt. If the answers are chats that repeat the
/// prompt, it is kept only once. Throws DataError.
ShapedRow preference_row(const Preference& given);

}  // namespace hybrid_trainer
