#include "src/observability/answers_html.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/html_text.h"

namespace hybrid_trainer {

std::string answers_html(const std::vector<ComparedAnswer>& answers) {
  if (answers.empty()) return "";
  std::string html = concat("<section class=\"card answers\"><h2>Answers <small>to ",
                            kind_of_prompts(answers), "</small></h2>\n");
  const auto line = [&](const char* name, const std::string& text) {
    html += concat("<dt>", name, "</dt><dd>", text.empty() ? "(nothing)" : html_escaped(text),
                   "</dd>\n");
  };
  for (const ComparedAnswer& answer : answers) {
    html += "<dl>";
    line("prompt", answer.prompt);
    if (!answer.wanted.empty()) line("wanted", answer.wanted);
    if (answer.before) line("before", *answer.before);
    line("after", answer.after);
    html += "</dl>\n";
  }
  return html + "</section>\n";
}

}  // namespace hybrid_trainer
