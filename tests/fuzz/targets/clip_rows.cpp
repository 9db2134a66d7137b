#include "src/data/examples/clip_rows.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  static const auto clip = input_file(
      "a.wav",
      std::string_view("RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3E\0\0\0\x7D\0\0\2\0\x10\0"
                       "data\4\0\0\0\1\0\2\0",
                       48));
  const auto path = input_file("rows.jsonl", input);
  ReadRows read;
  read_clip_rows({.path = path, .columns = {}}, 30, read, [](const ClipRow&) {});
}
