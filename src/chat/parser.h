#pragma once

#include <string>
#include <string_view>

#include "src/chat/nodes.h"

namespace hybrid_trainer::jinja {

struct ParsedTemplate {
  Statements statements;
  NameNumbers numbers;
  bool marks_generation = false;
  bool reads_date = false;
};

/// Throws DataError "name:line: …" for what is no template, and for each construct outside the
/// subset by its name.
ParsedTemplate parse_template(std::string_view source, const std::string& name);

}  // namespace hybrid_trainer::jinja
