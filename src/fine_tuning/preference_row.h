#pragma once

#include "src/fine_tuning/shaped_row.h"

namespace hybrid_trainer {

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
