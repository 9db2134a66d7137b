#include "src/data/images/picture_file.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const auto path = input_file("picture", input);
  unless_rejected([&] { read_picture_form(path); });
  read_picture(path);
}
