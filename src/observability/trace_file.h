#pragma once

#include <array>
#include <boost/json.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/files/file_descriptor.h"

namespace hybrid_trainer {

/// A file of trace events, one on a line; written by one thread at a time.
class TraceFile {
 public:
  static constexpr int kTraining = 1;  // the "process" of phases and steps
  static constexpr int kPhaseThread = 1, kStepThread = 2;

  /// What a file has left open, up to one of its events.
  struct Open {
    struct Block {
      std::string name;
      int process;
    };
    std::map<std::int64_t, Block> blocks;  // by number
    std::int64_t blocks_begun = 0;
    std::string phase;      // "" for none
    std::int64_t last = 0;  // time of an event
    std::array<std::int64_t, kPhases> steps{};

    void add(const boost::json::object& event);
  };

  /// Makes the file, or goes on with one. Throws CannotCreate.
  explicit TraceFile(std::filesystem::path path);
  /// Drops what follows the step, and a damaged end. Throws IoError.
  Open cut_after(std::int64_t step);
  /// Of what flush has written, or cut_after left.
  std::int64_t bytes() const { return bytes_; }
  bool is_empty() const { return bytes_ == 0 && text_.empty(); }

  void event(const char* type, const std::string& name, int process, std::int64_t at,
             const boost::json::object& more);
  void on_thread(const char* type, const std::string& name, int thread, std::int64_t at,
                 const boost::json::object& more = {});
  /// Of a slice, which is named and numbered, of a process.
  void slice(const char* type, const Open::Block& block, std::uint64_t number, std::int64_t at,
             const boost::json::object& more = {});
  /// Ends the array.
  void close();
  /// One write(2). Throws IoError.
  void flush();

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::string text_;  // not yet written
  std::int64_t bytes_ = 0;
};

}  // namespace hybrid_trainer
