#include "src/data/images/npy_file.h"

#include "src/data/images/picture_file.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const auto path = input_file("array", input);
  unless_rejected([&] { read_picture(path); });
  read_npy(path);
}
