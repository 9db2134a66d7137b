#include "src/data/audio/sound.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  read_wav(input_file("sound.wav", input));
}
