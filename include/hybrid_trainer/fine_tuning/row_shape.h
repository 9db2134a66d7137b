#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// Which keys an example has.
enum class RowShape { kText, kPair, kMessages, kShareGpt, kAlpaca, kPreference, kClip };

/// "text", "prompt and completion", "messages", "sharegpt", "alpaca", "preference", "clips".
const char* name_of(RowShape shape);

/// The keys of examples that are looked at.
const std::vector<std::string>& keys_of_examples();

/// What --columns gives questions and answers, such that a chat template writes them if there is
/// one: "instruction=COLUMN,output=COLUMN", or "prompt=COLUMN,completion=COLUMN".
std::string pair_columns(bool has_template, std::string_view column);

}  // namespace hybrid_trainer
