#pragma once

#include <array>
#include <boost/json.hpp>
#include <functional>

#include "src/data/examples/example_rows.h"
#include "src/files/json.h"

namespace hybrid_trainer {

/// An example in one of the forms that normal_row reads: "text", "prompt" with "completion", or
/// "messages". It may also have members of kContextKeys.
struct ShapedRow {
  RowShape shape = RowShape::kText;
  boost::json::object example;
  /// The other half of a preference; `example` has the chosen completion.
  std::optional<boost::json::object> rejected{};
  /// The --columns that train only on a preference's chosen answers; "" if there are none.
  std::string chosen_columns{};
  /// Members of the row that `example` was made from.
  std::set<std::string> used{};
};

/// Members that a chat of any shape may have; NormalRow lists the used ones.
inline constexpr std::array kContextKeys{"system", "tools", "functions", "documents",
                                         "chat_template_kwargs"};

/// Returns whether the tokens of `text` begin with the tokens of `start`.
using IsTokenPrefix = std::function<bool(const std::string& start, const std::string& text)>;

/// Settings for reading rows.
struct RowReading {
  bool has_template = false;        // a chat template renders chats
  bool pairs = false;               // rows are preference pairs, regardless of other keys
  IsTokenPrefix is_token_prefix{};  // null: always true
};

/// Returns suggested --columns for rows without a shape: "prompt=KEY,completion=KEY".
std::string columns_of(const RowReading& reading, std::string_view column);

/// Returns the value of a key, or null if it is absent, null or an empty list.
const boost::json::value* held(const boost::json::object& row, const char* key);

/// Determines the shape of an example and converts it. "messages" or "conversations" without a
/// final answer are the prompt of a "completion" in the same row. Alpaca's and Dolly's rows become
/// messages if there is a chat template, else a prompt with its parts on separate lines. Numbers
/// and Booleans become texts of JSON. `wide` has the wide integers of the row's line. Throws
/// DataError if the example has no shape or several, or if both halves of a preference are equal.
ShapedRow shaped_row(boost::json::object example, const RowReading& reading,
                     const WideIntegers& wide = {});

/// Two answers to the same prompt: texts, messages, or one message each.
struct Preference {
  const boost::json::object& shared_members;  // members of both halves
  boost::json::value chosen, rejected;
  std::optional<boost::json::value> prompt{};
  bool is_instruction = false;     // the prompt is made of several members
  bool has_conversations = false;  // the row has a member of that name
  std::string unnamed{};           // other text members, for messages
  IsTokenPrefix is_token_prefix{};
};

/// Makes "prompt" with "completion" for both halves. Without a prompt, uses the common beginning of
/// both answers. Chats repeat the prompt, which is kept once, or continue it. Throws DataError.
ShapedRow preference_row(const Preference& given);

}  // namespace hybrid_trainer
