#pragma once

#include <string>
#include <string_view>

namespace hybrid_trainer {

/// The end of a temporary name that nobody can guess or has: host, boot, name space of processes,
/// process and a random number.
std::string temporary_mark();

/// Whether the process that made the mark has certainly ended. False where that cannot be known, as of
/// another host's, another container's, and of a text that is no mark.
bool maker_has_ended(std::string_view mark);

}  // namespace hybrid_trainer
