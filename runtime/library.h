// A shared library opened at run time. Move-only; closes nothing on destruction: CUDA libraries keep threads and exit handlers of their
// own, and unloading them under those is undefined.
#pragma once

#include <string>
#include <vector>

#include "quern/result.h"

namespace quern {

class Library {
 public:
  // Tries the candidates in order; a name without a slash goes through the dynamic linker's search. Errors: kEnvironment naming `what`,
  // every candidate that was tried, and the linker's reason for the last one that exists but does not load.
  static Result<Library> open(const std::string& what, const std::vector<std::string>& candidates);

  void* symbol(const char* name) const;              // null when absent
  const std::string& path() const { return path_; }  // the file that was loaded, as the linker resolved it

 private:
  Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_ = nullptr;
  std::string path_;
};

// Directory of the running executable, or empty when the system does not tell.
std::string executable_directory();

}  // namespace quern
