#include "hybrid_trainer/observability/model_texts.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/files/json.h"
#include "src/files/output_file.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr std::size_t kMaxShown = 300;  // maximum bytes of a text on the console

/// Shortens a text to one line; keeps the end of a prompt and the beginning of an answer.
std::string in_one_line(const std::string& text, bool end) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string(" ⏎ ") : std::string(1, c);
  if (line.size() <= kMaxShown) return line;
  std::size_t cut = end ? line.size() - kMaxShown : whole_characters(line, kMaxShown);
  while (end && cut < line.size() && is_continuation(line[cut])) ++cut;
  return end ? concat("…", line.substr(cut)) : concat(line.substr(0, cut), "…");
}

}  // namespace

void write_answers(const std::string& file, const std::vector<ComparedAnswer>& answers) {
  boost::json::array all;
  for (const ComparedAnswer& answer : answers) {
    all.push_back(boost::json::object{
        {"prompt", answer.prompt},
        {"wanted", answer.wanted},
        {"before", answer.before ? boost::json::value(*answer.before) : boost::json::value()},
        {"after", answer.after},
        {"held_out", answer.held_out}});
  }
  replace_file(file, json_line(boost::json::object{{"answers", std::move(all)}}) + "\n");
}

std::vector<ComparedAnswer> read_answers(const std::string& file) {
  std::vector<ComparedAnswer> answers;
  try {
    const boost::json::value content = read_json(file);
    for (const boost::json::value& value : content.at("answers").as_array()) {
      const auto text = [&](const char* key) { return std::string(value.at(key).as_string()); };
      const bool has_before = value.at("before").is_string();
      answers.push_back({text("prompt"), text("wanted"),
                         has_before ? std::optional(text("before")) : std::nullopt, text("after"),
                         value.at("held_out").as_bool()});
    }
  } catch (const std::exception&) {
    return {};
  }
  return answers;
}

std::string kind_of_prompts(const std::vector<ComparedAnswer>& answers) {
  return answers.empty() || answers.front().held_out ? "held-out prompts"
                                                     : "prompts of the training examples";
}

std::string answers_text(const std::vector<ComparedAnswer>& answers) {
  std::string text = concat("answers to ", kind_of_prompts(answers), ":");
  const auto line = [&](const char* name, const std::string& said, bool end = false) {
    text += concat("\n  ", name, said.empty() ? "(nothing)" : in_one_line(said, end));
  };
  for (const ComparedAnswer& answer : answers) {
    line("prompt  ", answer.prompt, true);
    if (!answer.wanted.empty()) line("wanted  ", answer.wanted);
    if (answer.before) line("before  ", *answer.before);
    line("after   ", answer.after);
    if (&answer != &answers.back()) text += "\n";
  }
  return text;
}

}  // namespace hybrid_trainer
