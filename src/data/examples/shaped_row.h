#pragma once

#include <array>
#include <boost/json.hpp>
#include <functional>

#include "src/data/examples/example_rows.h"
#include "src/files/json.h"

namespace hybrid_trainer {

/// An example in one of the forms that normal_row reads: "text", "prompt" with "completion", or
/// "messages"; and what of kBeside stands there too.
struct ShapedRow {
  RowShape shape = RowShape::kText;
  boost::json::object example;
  /// Of a preference the other half: `example` has the chosen completion.
  std::optional<boost::json::object> rejected{};
  /// Of a preference: the columns by which the chosen answers alone are learnt; "" where none do that.
  std::string chosen_columns{};
  /// The members of the row of which the form was made.
  std::set<std::string> used{};
};

/// Members that a chat of any shape may have; NormalRow lists those that it used.
inline constexpr std::array kBeside{"system", "tools", "functions", "documents",
                                    "chat_template_kwargs"};

/// Whether the tokens of a start are those that the whole text begins with.
using BeginsTokens = std::function<bool(const std::string& start, const std::string& text)>;

/// How rows are read.
struct RowReading {
  bool has_template = false;     // a chat template writes chats
  bool pairs = false;            // rows are pairs of answers, whatever else they hold
  BeginsTokens begins_tokens{};  // null if every start does
};

/// Suggested --columns for rows without a shape: "prompt=KEY,completion=KEY".
std::string columns_of(const RowReading& reading, std::string_view column);

/// Whether a row has something under a key: no null and no empty list.
const boost::json::value* held(const boost::json::object& row, const char* key);

/// Tells the shape of an example and converts it. "messages" or "conversations" that do not end with
/// an answer are the prompt of a "completion" beside them. Alpaca's and Dolly's become messages with a
/// chat template, else a prompt with its parts on lines of their own. Numbers and truth values in place
/// of a text are their JSON text. `wide`: integers of the row's line. Throws DataError if it has no shape
/// or several, or both halves of a preference are equal.
ShapedRow shaped_row(boost::json::object example, const RowReading& reading,
                     const WideIntegers& wide = {});

/// Two answers to one prompt: texts, messages, or one message each.
struct Preference {
  const boost::json::object& beside;  // members of both halves
  boost::json::value chosen, rejected;
  std::optional<boost::json::value> prompt{};
  bool is_instruction = false;     // the prompt is made of several members
  bool has_conversations = false;  // the row has a member of that name
  std::string unnamed{};           // other members that are texts, for messages
  BeginsTokens begins_tokens{};
};

/// Makes "prompt" with "completion" of both halves. Without a prompt it is what both begin with; chats that
/// repeat it keep it once, others go on from it. Throws DataError.
ShapedRow preference_row(const Preference& given);

}  // namespace hybrid_trainer
