#pragma once

#include <ctime>

#include "hybrid_trainer/chat/chat_template.h"
#include "src/chat/parser.h"

namespace hybrid_trainer::jinja {

/// Runs the statements of a template. Throws Problem; `line` then says where.
RenderedChat render(const ParsedTemplate& parsed, Dict variables, std::time_t now, int& line);

}  // namespace hybrid_trainer::jinja
