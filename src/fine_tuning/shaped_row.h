#pragma once

#include <boost/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "hybrid_trainer/fine_tuning/row_shape.h"

namespace hybrid_trainer {

/// An example in one of the forms that everything behind this reads: "text", "prompt" with
/// "completion", or "messages".
struct ShapedRow {
  RowShape shape = RowShape::kText;
  boost::json::object example;
  /// Of a preference the other half: `example` has the chosen completion.
  std::optional<boost::json::object> rejected{};
  /// Of a preference: the columns by which the chosen answers alone are learnt; "" where none do that.
  std::string chosen_columns{};
};

/// Whether a row has something under a key: no null and no empty list.
const boost::json::value* held(const boost::json::object& row, const char* key);

/// Whether rows of a shape are made of what stands under a key, or may have it beside any shape.
bool is_used(RowShape shape, std::string_view key);

/// Tells the shape of an example and converts it. "messages" or "conversations" that do not end with
/// an answer are the prompt of a "completion" beside them. Alpaca's and Dolly's become messages where the
/// model's folder has a chat template, else a prompt with its parts on lines of their own. Adds to
/// `unused` each key that means something elsewhere and nothing here. Throws DataError where it has no
/// shape or several, or where both halves of a preference are equal.
ShapedRow shaped_row(boost::json::object example, bool has_template, std::set<std::string>& unused);

}  // namespace hybrid_trainer
