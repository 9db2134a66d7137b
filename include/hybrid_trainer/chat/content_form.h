#pragma once

#include <ctime>

#include "hybrid_trainer/chat/chat_template.h"

namespace hybrid_trainer {

/// Whether the chat template writes a message's content only where it is a list of parts,
/// [{"type": "text", "text": …}], and not where it is a text. False without a template.
bool takes_parts_alone(const ChatFiles& chat, std::time_t now);

}  // namespace hybrid_trainer
