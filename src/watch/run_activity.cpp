#include "src/watch/run_activity.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "hybrid_trainer/io/run_directory.h"

namespace hybrid_trainer {
namespace {

std::string content_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

bool is_locked(const std::string& lock) {
  struct stat found {};
  if (::stat(lock.c_str(), &found) != 0) return false;
  std::ifstream locks("/proc/locks");
  const std::string inode = concat(":", found.st_ino, " ");
  for (std::string line; std::getline(locks, line);) {
    const bool is_whole = line.find("FLOCK") != std::string::npos &&
                          line.find("WRITE") != std::string::npos &&
                          line.find("->") == std::string::npos;  // one that waits
    if (is_whole && line.find(inode) != std::string::npos) return true;
  }
  return false;
}

std::string command_of_holder(const std::string& lock) {
  const std::string process = process_of_lock(lock);
  if (process.empty()) return "";
  const std::string words = content_of_file("/proc/" + process + "/cmdline");
  std::string text;
  for (std::size_t begin = 0, end = 0; (end = words.find('\0', begin)) != std::string::npos;
       begin = end + 1)
    text += (text.empty() ? "" : " ") + shell_word(words.substr(begin, end - begin));
  return text;
}

}  // namespace hybrid_trainer
