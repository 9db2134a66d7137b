#include "src/data/examples/choice_questions.h"

#include "tests/fuzz/targets/rows_fixture.h"

void hybrid_trainer::read_input(std::string_view input) {
  static const RowsFixture fixture;
  read_choice_questions(input_file("questions.jsonl", input),
                        {.tokenizer = *fixture.tokenizer, .chat = fixture.chat, .vocabulary = 256});
}
