#include <boost/json.hpp>

#include "src/files/json.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const std::string name = "input.json";
  unless_rejected([&] {
    JsonKeys keys;
    parse_json_text(input, name, keys);
  });
  unless_rejected([&] {
    WideIntegers wide;
    parse_python_json(with_named_floats(input), name, input.size(), wide);
  });
  WideIntegers wide;
  const json::value value = parse_noted_json(input, name, input.size(), wide);
  // What this program writes, it reads.
  for (const std::string& text : {pretty_json(value), typed_pretty_json(value), json_line(value)})
    parse_json_text(text, name, {.max_bytes = text.size()});
}
