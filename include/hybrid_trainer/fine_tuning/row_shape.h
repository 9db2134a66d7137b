#pragma once

#include <string>
#include <vector>

namespace hybrid_trainer {

/// Which keys an example has.
enum class RowShape { kText, kPair, kMessages, kShareGpt, kAlpaca, kPreference, kClip };

/// "text", "prompt and completion", "messages", "sharegpt", "alpaca", "preference", "clips".
const char* name_of(RowShape shape);

/// The keys of examples that are looked at.
const std::vector<std::string>& keys_of_examples();

}  // namespace hybrid_trainer
