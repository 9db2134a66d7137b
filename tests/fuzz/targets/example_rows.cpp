#include "src/data/examples/example_rows.h"

#include "tests/fuzz/targets/rows_fixture.h"

void hybrid_trainer::read_input(std::string_view input) {
  static const RowsFixture fixture;
  const std::size_t kind = choice_in(input, 6);
  ExampleFormat format{.tokenizer = *fixture.tokenizer, .chat = fixture.chat, .longest = 256};
  format.pairs = kind % 3 == 1;
  if (kind % 3 == 2) format.source = SourceFormat{.start = 0, .longest = 64};
  if (kind >= 3) format.control = ControlText::kAsText;
  const ExampleRows rows = read_example_rows(input_file("rows.jsonl", input), format);
  rows.form();
  rows.notes();
  rows.mostly_rejected_warning();
  end_tokens_of(rows.rows, *fixture.tokenizer);
}
