#include "hybrid_trainer/models/model_config.h"

#include "src/data/images/picture_processor.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/fuzz/fuzz_target.h"

/// config.json, generation_config.json and preprocessor_config.json of a Hugging Face folder.
void hybrid_trainer::read_input(std::string_view input) {
  const auto parts = parts_of(input, 3);
  input_file("config.json", parts[0]);
  input_file("generation_config.json", parts[1].empty() ? "{}" : parts[1]);
  input_file("preprocessor_config.json", parts[2]);
  const ModelFolder folder(input_folder());
  unless_rejected([&] { read_generation_keys({folder}); });
  unless_rejected([&] { token_ids_in(folder); });
  unless_rejected([&] { end_token_ids_in(folder); });
  unless_rejected([&] { quantization_of_hugging_face(folder); });
  unless_rejected([&] { read_picture_steps(input_folder()); });
  read_hugging_face_model_config(folder, 0.1);
}
