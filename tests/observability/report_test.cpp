#include "src/observability/report.h"

#include <boost/json.hpp>
#include <regex>
#include <set>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/observability/jsonl_sink.h"
#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

using testing::full_record;

class ReportTest : public testing::Folder {
 protected:
  /// Writes a report of an existing metrics.jsonl and returns the page.
  std::string report_of_metrics(ReportInput input) {
    input.metrics = file("metrics.jsonl");
    write_report(file("report.html"), input);
    return text_of(file("report.html"));
  }

  /// Writes the records of a run through all phases and returns the report's page.
  std::string report(ReportInput input) {
    JsonlSink sink(file("metrics.jsonl"));
    std::int64_t step = 0;
    for (Phase phase : kAllPhases) {
      for (int i = 0; i < 3; ++i) {
        const StepRecord record = full_record(++step, phase);
        sink.write(record);
        input.summary.add(record);
      }
    }
    return report_of_metrics(std::move(input));
  }

  static boost::json::value data_of(const std::string& page) {
    const std::string opening = "<script type=\"application/json\" id=\"data\">";
    const std::size_t begin = page.find(opening) + opening.size();
    return boost::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  }
};

TEST_F(ReportTest, HasBandForEachPhase) {
  const boost::json::value data = data_of(report({}));
  std::set<std::string> phases;
  for (const auto& band : data.at("bands").as_array()) {
    phases.insert(std::string(std::string_view(band.at(0).as_string())));
  }
  EXPECT_EQ(phases, (std::set<std::string>{"warmup", "full", "predict", "correct"}));
}

TEST_F(ReportTest, CountsExamplesForNonTextModels) {
  ReportInput input;
  JsonlSink sink(file("metrics.jsonl"));
  StepRecord record = full_record(1);
  record.tokens = record.effective_batch;
  sink.write(record);
  input.summary.add(record);
  input.summary.final_validation_loss = 0.5;
  const std::string page = report_of_metrics(std::move(input));
  for (const char* text : {"Examples per second", "16 examples in total", ">mean over examples<",
                           "data-label=\"Examples/s\""})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  for (const char* text : {"perplexity", "nats per", "okens per second"})
    EXPECT_EQ(page.find(text), std::string::npos) << text;
  EXPECT_EQ(data_of(page).at("unit"), "examples");
  EXPECT_EQ(data_of(report({})).at("unit"), "tokens");
}

TEST_F(ReportTest, ShowsMemorySavingsAndFittingBatch) {
  EXPECT_EQ(report({}).find("Memory saved"), std::string::npos);
  ReportInput input;
  input.summary.savings = {{"memory.weights", "host", 3'000'000, {1'500, 0, -2'500, 0}}};
  input.summary.file_peak_by_kind[static_cast<std::size_t>(MemoryKind::kSnapshot)] = 4'200;
  const std::string page = report(std::move(input));
  for (const char* text : {"Memory saved", "memory.weights", ">3.00 MB<", ">1.50 kB<", ">−2.50 kB<",
                           "12 sequences", "snapshot 4.20 kB"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
}

TEST_F(ReportTest, IncludesDecisionsOfEvents) {
  StepRecord record = full_record(4, Phase::kCorrect);
  record.decision = Decision::kShrunk;
  record.kept_fraction = 0.25;
  record.event = "in any words";
  JsonlSink(file("metrics.jsonl")).write(record);
  record.decision = Decision::kNone;
  record.kept_fraction.reset();
  record.warns = true;
  JsonlSink(file("metrics.jsonl")).write(record);
  EXPECT_EQ(boost::json::serialize(data_of(report_of_metrics({})).at("events")),
            R"([[4,"correct","in any words",false,"shrunk",2.5E-1],)"
            R"([4,"correct","in any words",true]])");
}

TEST_F(ReportTest, ShowsCostOfEachPhase) {
  EXPECT_NE(report({}).find("<td data-label=\"Cost\">7.2</td>"), std::string::npos);
}

TEST_F(ReportTest, HasNoExternalReferences) {
  const std::string page = report({});
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_FALSE(std::regex_search(page, std::regex(R"((src|href)\s*=|@import|url\((?!#))")));
}

TEST_F(ReportTest, EscapesUserText) {
  ReportInput input;
  input.title = "<img src=x onerror=alert(1)>";
  input.settings = "{\"name\": \"</pre><script>alert(2)</script>\"}";
  input.texts.sample = "template <class T> & \"more\" </main>";
  input.texts.answers = {{"<i>prompt", "<i>wanted", "<i>before", "<i>after"}};
  input.summary.command = "hybrid --run '<b>'";
  const std::string page = report(input);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<b>'"), std::string::npos);
  EXPECT_EQ(page.find("<i>"), std::string::npos);
  for (const char* text : {"prompt", "wanted", "before", "after"})
    EXPECT_NE(page.find(concat("<dt>", text, "</dt><dd>&lt;i&gt;", text)), std::string::npos);
  EXPECT_NE(page.find("template &lt;class T&gt; &amp; &quot;more&quot; &lt;/main&gt;"),
            std::string::npos);
}

TEST_F(ReportTest, DoesNotExpandFilledPlaceholders) {
  ReportInput input;
  input.texts.sample = "{{settings}} {{nothing}}";
  input.settings = "only once";
  const std::string page = report(input);
  EXPECT_NE(page.find("{{settings}} {{nothing}}"), std::string::npos);
  EXPECT_EQ(page.find("only once"), page.rfind("only once"));
}

TEST_F(ReportTest, OmitsEmptySampleAndSettings) {
  EXPECT_EQ(report({}).find("<details"), std::string::npos);
}

TEST_F(ReportTest, ReplacesOldReportWithoutLeftovers) {
  std::ofstream(file("report.html")) << "old";
  EXPECT_EQ(report({}).find("old\n"), std::string::npos);
  using Entries = std::filesystem::directory_iterator;
  EXPECT_EQ(std::distance(Entries(file("report.html").parent_path()), Entries()), 2)
      << "the folder contains more than metrics.jsonl and report.html";
}

TEST_F(ReportTest, AcceptsRunWithoutSteps) {
  std::ofstream(file("metrics.jsonl")).close();
  ReportInput input;
  input.metrics = file("metrics.jsonl");
  EXPECT_NO_THROW(write_report(file("report.html"), input));
  EXPECT_THROW(write_report(file("missing") / "report.html", input), IoError);
}

}  // namespace
}  // namespace hybrid_trainer
