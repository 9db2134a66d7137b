#include "hybrid_trainer/observability/report.h"

#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/observability/jsonl_sink.h"
#include "hybrid_trainer/observability/report_content.h"

namespace hybrid_trainer {

void write_report(const std::filesystem::path& path, const ReportInput& input) {
  ReportContent content;
  for_each_record(input.metrics, [&](const StepRecord& record) { content.add(record); });
  replace_file(path, content.page(input.summary, {.title = input.title,
                                                  .kind = "training report",
                                                  .settings = input.settings,
                                                  .of_model = input.texts}));
}

}  // namespace hybrid_trainer
