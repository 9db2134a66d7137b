#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "src/core/messages.h"
#include "src/data/chat/chat_template.h"
#include "src/data/examples/example_rows.h"
#include "src/data/examples/packed_rows.h"
#include "src/data/tables/row_files.h"
#include "src/data/tables/table_reader.h"
#include "src/files/json.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/language_data.h"
#include "src/run/run_files.h"
#include "src/run/speech/clips.h"
#include "src/tasks/network_data.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/config_arguments.h"
#include "src/tools/options.h"
#include "src/tools/standard_input.h"

namespace hybrid_trainer {

namespace {

constexpr std::int64_t kUsualLength = 1024;

/// What `hybrid rows` was asked.
struct RowsAsked {
  std::string data, called{};  // --data; its name in messages, if that is not its path
  ModelFolder model{};         // of a model or a run; empty: the preset's or file's
  ConfigArguments source{};    // --preset, --config, --set
  std::string columns{}, control_tokens = "tokens", objective = "next_token";
  std::int64_t longest = kUsualLength;
  std::optional<std::int64_t> shown{};  // a line, row or example, from 1
  bool json = false;
};

bool is_run(const ModelFolder& folder) {
  return !folder.empty() && RunPaths{folder.string()}.hold_a_run();
}

/// Of a folder with config.json, or a run; none of a folder with a tokenizer alone.
HybridTrainerConfig config_of(const RowsAsked& asked) {
  HybridTrainerConfig config;
  if (is_run(asked.model)) {
    config = config_of_run(RunPaths{asked.model.string()});
  } else if (std::filesystem::exists(asked.model.path() / "config.json")) {
    config.model = read_hugging_face_model_config(asked.model, 0);
  }
  const bool is_set = asked.source.names_a_source() || !asked.source.settings.empty();
  if (is_set) config = build_config(asked.source, config);
  if (!asked.columns.empty()) config.data.columns = asked.columns;
  return config;
}

void print(const DataFacts& facts) {
  std::size_t widest = 0;
  for (const auto& [name, value] : facts) widest = std::max(widest, name.size());
  for (const auto& [name, value] : facts)
    std::cout << name << std::string(widest + 2 - name.size(), ' ') << value << "\n";
}

boost::json::object as_json(const DataFacts& facts) {
  boost::json::object object;
  for (const auto& [name, value] : facts) object[name] = value;
  return object;
}

/// Prints what a network would learn from the data, or from the example that is to be shown. Throws
/// UsageError, MissingInput, DataError.
void show_network_rows(const RowsAsked& asked, HybridTrainerConfig config) {
  if (asked.longest != kUsualLength || asked.objective != "next_token" ||
      asked.control_tokens != "tokens")
    throw UsageError(
        "hybrid rows: --length, --objective and --control-tokens are of text, and this network "
        "reads none; leave them out");
  const auto data = opened_data({.config = config,
                                 .data = asked.data,
                                 .model = asked.model.path(),
                                 .is_trained = is_run(asked.model)});
  config = data->completed(config);
  const DataFacts facts =
      asked.shown ? data->example(*asked.shown, config) : data->contents(config);
  if (asked.json) {
    boost::json::object line = as_json(facts);
    if (!asked.shown) {
      line = {{"data", data->description()},
              {"contents", std::move(line)},
              {"notes", boost::json::value_from(data->notes())}};
    }
    std::cout << json_line(line) << "\n";
    return;
  }
  if (!asked.shown) {
    std::cout << data->description() << "\n";
    for (const std::string& note : data->notes()) std::cerr << note << "\n";
  }
  print(facts);
}

struct RowCounts {
  std::int64_t tokens = 0, targets = 0, cut_rows = 0, left_out = 0, answers_left_out = 0;
  std::int64_t sources = 0, cut_sources = 0;  // tokens of sources, and sources that lose some
};

RowCounts counts_of(const std::vector<ExampleRow>& rows) {
  RowCounts counts;
  for (const ExampleRow& row : rows) {
    counts.tokens += std::ssize(row.tokens);
    counts.targets += row.targets();
    counts.sources += std::ssize(row.source);
    counts.cut_sources += row.source_left_out > 0 ? 1 : 0;
    counts.cut_rows += row.left_out > 0 ? 1 : 0;
    counts.left_out += row.left_out;
    counts.answers_left_out += row.answers_left_out;
  }
  return counts;
}

void print_refusals(const ExampleRows& examples) {
  constexpr std::size_t kShown = 10;
  const auto& refused = examples.refused;
  for (std::size_t i = 0; i < std::min(kShown, refused.size()); ++i)
    std::cerr << examples.place(refused[i].file, refused[i].line, false)
              << " is refused: " << refused[i].reason << "\n";
  if (refused.size() > kShown) std::cerr << "and " << refused.size() - kShown << " more\n";
}

struct RowPart {
  std::string text;
  bool learned = false;
  const char* answer = nullptr;  // of a pair: "chosen" or "rejected"
};

/// A row, cut where learning begins and ends.
std::vector<RowPart> parts_of(const ExampleRow& row, const Tokenizer& tokenizer) {
  std::vector<RowPart> parts;
  const auto middle = static_cast<std::size_t>(row.rejected_at);
  if (!row.source.empty()) parts.push_back({tokenizer.decode(row.source) + "\n"});
  for (std::size_t begin = 0, end = 0; begin < row.tokens.size(); begin = end) {
    while (end < row.tokens.size() && row.learnt[end] == row.learnt[begin] &&
           (end == begin || end != middle))
      ++end;
    const std::span<const std::int32_t> tokens(row.tokens);
    parts.push_back({tokenizer.decode(tokens.subspan(begin, end - begin)), row.learnt[begin]});
    if (middle > 0) parts.back().answer = begin < middle ? "chosen" : "rejected";
  }
  return parts;
}

/// What a line gives: a row, or the two of a preference.
struct ShownRow {
  std::vector<RowPart> row;  // of a preference the chosen one
  std::optional<std::vector<RowPart>> rejected;
};

/// Throws DataError that says why the line gives no row.
[[noreturn]] void refuse_line(const ExampleRows& examples, std::int64_t line) {
  const std::string place = examples.place(0, line, false);
  std::int64_t last = 0;
  for (const auto& refused : examples.refused) {
    last = std::max(last, refused.line);
    if (refused.line == line) throw DataError(concat(place, " is refused: ", refused.reason));
  }
  for (const ExampleRow& row : examples.rows) last = std::max(last, row.line);
  for (const PreferencePair& pair : examples.pairs) last = std::max(last, pair.chosen.line);
  if (line < last) throw DataError(concat(place, " is empty"));
  throw DataError(concat(place, " is not there: the last one with an example is ", last));
}

ShownRow row_of_line(const ExampleRows& examples, std::int64_t line, const Tokenizer& tokenizer) {
  if (examples.files.size() > 1)
    throw UsageError("hybrid rows: --show is of one file; give that instead of the folder");
  const auto row = std::ranges::find(examples.rows, line, &ExampleRow::line);
  if (row != examples.rows.end()) return {parts_of(*row, tokenizer), std::nullopt};
  const auto pair = std::ranges::find(examples.pairs, line,
                                      [](const PreferencePair& one) { return one.chosen.line; });
  if (pair == examples.pairs.end()) refuse_line(examples, line);
  return {parts_of(pair->chosen, tokenizer), parts_of(pair->rejected, tokenizer)};
}

void print_row(const std::vector<RowPart>& parts) {
  const char* answer = nullptr;
  for (const RowPart& part : parts) {
    if (part.answer != answer) std::cout << (answer ? "\n" : "") << part.answer << ": ";
    answer = part.answer;
    std::cout << (part.learned ? concat("⟦", part.text, "⟧") : part.text);
  }
  std::cout << "\n";
}

boost::json::array parts_as_json(const std::vector<RowPart>& parts) {
  boost::json::array texts;
  for (const RowPart& part : parts) {
    boost::json::object one{{"text", part.text}, {"learned", part.learned}};
    if (part.answer != nullptr) one["answer"] = part.answer;
    texts.push_back(std::move(one));
  }
  return texts;
}

void print_shown(const ShownRow& shown, std::int64_t line, bool json) {
  if (json) {
    boost::json::object object{{"line", line}, {"parts", parts_as_json(shown.row)}};
    if (shown.rejected) object["rejected"] = parts_as_json(*shown.rejected);
    std::cout << json_line(object) << "\n";
    return;
  }
  print_row(shown.row);
  if (shown.rejected) std::cout << "rejected:\n";
  if (shown.rejected) print_row(*shown.rejected);
}

boost::json::array files_as_json(const ExampleRows& examples, const std::string& called) {
  boost::json::array files;
  for (std::size_t i = 0; i < examples.files.size(); ++i) {
    const RowFile& file = examples.files[i];
    boost::json::object shapes;
    for (const auto& [shape, count] : examples.shapes[i]) shapes[name_of(shape)] = count;
    files.push_back({{"file", called.empty() ? file.path.string() : called},
                     {"container", name_of(file.form.container)},
                     {"shapes", shapes}});
  }
  return files;
}

/// Sequences that the rows fill; none where there are no rows.
struct Packing {
  std::int64_t sequences = 0;
  double fill = 0;  // 0: rows with clips or sources, each of which has one of its own
};

Packing packing_of(const std::vector<ExampleRow>& rows, std::int64_t length) {
  if (rows.empty()) return {};
  const bool has_sources = rows.front().clip || !rows.front().source.empty();
  if (has_sources) return {std::ssize(rows), 0};  // as long as the longest
  const PackedRows packed(rows, {.sequence_length = length});
  return {packed.size(), packed.fill()};
}

void print_json(const ExampleRows& examples, const Packing& packing, const std::string& called) {
  const RowCounts counts = counts_of(examples.rows);
  boost::json::array refused;
  for (const auto& [line, reason, file] : examples.refused) {
    boost::json::object one{{"line", line}, {"reason", reason}};
    if (examples.files.size() > 1) one["file"] = examples.files[file].path.string();
    refused.push_back(std::move(one));
  }
  boost::json::object line{{"files", files_as_json(examples, called)},
                           {"rows", examples.rows.size()},
                           {"preferences", examples.pairs.size()},
                           {"tokens", counts.tokens},
                           {"targets", counts.targets},
                           {"cut_rows", counts.cut_rows},
                           {"tokens_left_out", counts.left_out},
                           {"answers_left_out", counts.answers_left_out},
                           {"sequences", packing.sequences},
                           {"fill", packing.fill},
                           {"refused", refused}};
  if (counts.sources > 0) line["source_tokens"] = counts.sources;
  if (counts.sources > 0) line["cut_sources"] = counts.cut_sources;
  std::cout << json_line(line) << "\n";
}

void print_text(const ExampleRows& examples, const Packing& packing, std::int64_t longest) {
  const RowCounts counts = counts_of(examples.rows);
  std::cout << examples.rows.size() << " rows of " << units::grouped(counts.tokens)
            << " tokens, of which " << units::grouped(counts.targets) << " are targets; "
            << examples.refused.size() << " lines refused\n";
  if (!examples.pairs.empty())
    std::cout << examples.pairs.size()
              << " preferences (chosen and rejected), which finetune does not train on\n";
  if (counts.sources > 0)
    std::cout << "their sources have " << units::grouped(counts.sources) << " tokens"
              << (counts.cut_sources > 0 ? concat("; ", counts.cut_sources, " are cut to what the ",
                                                  "encoder reads at most")
                                         : "")
              << "\n";
  if (counts.cut_rows > 0)
    std::cout << counts.cut_rows << " rows are cut after " << longest + 1 << " tokens, "
              << units::grouped(counts.left_out) << " tokens left out\n";
  if (examples.rows.empty() || packing.fill == 0) return;
  std::cout << packing.sequences << " sequences of " << longest << " tokens, "
            << units::fixed(100 * packing.fill, 1) << " % of them filled\n";
}

/// What the examples turned out to be.
void tell_form(const ExampleRows& examples, const std::string& name) {
  std::cerr << name << ": " << examples.form() << "\n";
  for (const RowFile& file : examples.files) {
    if (file.form.container != RowContainer::kJsonArray) continue;
    std::cerr << (examples.files.size() > 1 ? file.path.string() : name)
              << (file.form.array_key.empty() ? " is" : " holds") << " a JSON array"
              << (file.form.array_key.empty() ? "" : " under " + file.form.array_key)
              << ", whose elements count as lines\n";
  }
  if (!examples.pairs.empty())
    std::cerr << "pairs of answers are trained on with `hybrid finetune --objective dpo` or orpo\n";
}

/// Without an encoder where a folder has a tokenizer alone.
ModelConfig model_in(const ModelFolder& folder) {
  if (!std::filesystem::exists(folder.path() / "config.json")) return {};
  return read_hugging_face_model_config(folder, 0);
}

/// Prints what a language model would learn from the rows, or from the one that is to be shown. Throws
/// UsageError, MissingInput, DataError.
void show_rows(const RowsAsked& asked) {
  if (asked.source.names_a_source() || !asked.source.settings.empty())
    throw UsageError(
        "hybrid rows: --preset, --config and --set are of networks that read no text; of text give "
        "--model FOLDER alone, whose tokenizer encodes the rows");
  const ModelFolder& folder = asked.model;
  const ChatFiles& chat = folder.chat();
  const auto tokenizer = folder.tokenizer();
  ExampleFiles of_model;
  of_model.set_encoder(model_in(folder), {folder});
  const ExampleFormat format{.tokenizer = *tokenizer,
                             .chat = chat,
                             .longest = asked.longest + 1,
                             .now = std::time(nullptr),
                             .control = control_text_of(asked.control_tokens),
                             .columns = ColumnNames(asked.columns, "hybrid rows: --columns"),
                             .called = asked.called,
                             .pairs = asked.objective != "next_token",
                             .source = of_model.source};
  const double seconds = of_model.heard_seconds;
  const ExampleRows examples =
      seconds > 0 ? read_clip_examples(asked.data, format, seconds,
                                       read_speech_tokens(*tokenizer, of_model.generation))
                  : read_example_rows(asked.data, format);
  const auto reads_date = [](const auto& source) { return source && source->reads_date(); };
  if (reads_date(chat.chat_template) || reads_date(chat.tool_template))
    std::cerr << "the chat template writes today's date into the rows\n";
  tell_form(examples, asked.called.empty() ? asked.data : asked.called);
  print_refusals(examples);
  for (const std::string& note : examples.notes()) std::cerr << note << "\n";
  const std::string others = told_of_other_files(asked.data, {RowSplit::kTrain});
  if (!others.empty()) std::cerr << asked.data << ": " << others << "\n";
  if (asked.shown) {
    print_shown(row_of_line(examples, *asked.shown, *tokenizer), *asked.shown, asked.json);
    return;
  }
  const std::string problem = examples.mostly_refused();
  const bool is_empty = examples.rows.empty() && examples.pairs.empty();
  if (is_empty)
    throw DataError(concat(asked.called.empty() ? asked.data : asked.called, ": ", problem));
  if (!problem.empty()) std::cerr << "finetune would refuse it: " << problem << "\n";
  const Packing packing = packing_of(examples.rows, asked.longest);
  if (asked.json) {
    print_json(examples, packing, asked.called);
  } else {
    print_text(examples, packing, asked.longest);
  }
}

}  // namespace

int rows_command(const std::vector<std::string>& arguments) {
  RowsAsked asked;
  std::string model;
  CommandSyntax syntax{
      .name = "rows",
      .usage = "EXAMPLES (--model FOLDER | --preset NAME) [--length N] [--show LINE] [--json]",
      .description =
          "Shows what a model would learn from examples (JSON, CSV, parquet, a folder of them, or "
          "-\n"
          "for standard input): rows used and refused, tokens, and packed sequences. Of pictures,\n"
          "arrays and tables of series: classes, tensors or columns, and what they are read "
          "as.",
      .operands = {"EXAMPLES"}};
  auto add = syntax.options.add_options();
  add("model", model_value(model, "FOLDER"),
      "Hugging Face folder, GGUF file or ollama:NAME, with tokenizer and chat template; of other "
      "networks also a run.");
  add_source_options(syntax.options, asked.source);
  add("length", po::value(&asked.longest)->value_name("N"),
      "data.sequence_length of the run to come (1024); a row has at most one token more.");
  add("show", po::value<std::int64_t>()->value_name("LINE")->notifier([&](auto line) {
    asked.shown = line;
  }),
      "Print the row of this line, its target tokens between ⟦ and ⟧.");
  add_columns_option(syntax.options, asked.columns);
  add("objective", po::value(&asked.objective)->value_name("WHAT"),
      "That of the run to come: next_token, or dpo or orpo, whose rows are pairs of answers "
      "(next_token).");
  add_control_tokens_option(syntax.options, asked.control_tokens);
  add("json", po::bool_switch(&asked.json), "Print one JSON object.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if (asked.longest < 2 || asked.longest > 1 << 24)
    throw UsageError(concat("hybrid rows: --length: got ", asked.longest, ", want 2 … ", 1 << 24));

  const std::vector<std::string> objectives{"next_token", "dpo", "orpo"};
  if (std::ranges::count(objectives, asked.objective) == 0)
    throw UsageError(choice_problem("hybrid rows: --objective", asked.objective, objectives));
  if (asked.shown && *asked.shown < 1)
    throw UsageError(concat("hybrid rows: --show: got ", *asked.shown, ", want a line, 1 or more"));

  if (model.empty() && !asked.source.names_a_source())
    throw UsageError("hybrid rows: give --model FOLDER, or --preset NAME of a network");
  std::optional<StandardInput> input;
  asked.model = model;
  asked.data = operands->front();
  if (asked.data == StandardInput::kOption) {
    asked.data = input.emplace().path().string();
    asked.called = StandardInput::kCalled;
  }
  const HybridTrainerConfig config = config_of(asked);
  find_family(config.model.family).is_of_language ? show_rows(asked)
                                                  : show_network_rows(asked, config);
  return 0;
}

}  // namespace hybrid_trainer
