// A libnvrtc.so for tests: takes any source that has all its headers, and gives a text that only the emulated driver takes for a module.
// YGG_EMULATION_COMPILES=no lets it refuse every source.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

struct Program {
    std::string log;
};
typedef int nvrtcResult;
static const char MODULE[] = "// kernels are those of the emulation\n";

#define API extern "C" __attribute__((visibility("default")))

API nvrtcResult nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return 0;
}
API const char* nvrtcGetErrorString(nvrtcResult) { return "error of the emulated compiler"; }
API nvrtcResult nvrtcCreateProgram(Program** program, const char* source, const char*, int headers, const char* const* texts, const char* const* names) {
    *program = new Program;
    // Every header that is included must be given: a compiler would not find it elsewhere.
    auto check = [&](const char* text) {
        for (const char* at = text; (at = std::strstr(at, "#include \"")); at += 10) {
            const std::string name(at + 10, std::strchr(at + 10, '"'));
            bool is_known = name.starts_with("emu/");
            for (int i = 0; i < headers; ++i) is_known |= name == names[i];
            if (!is_known) (*program)->log += "cannot open " + name + "\n";
        }
    };
    const char* wish = std::getenv("YGG_EMULATION_COMPILES");
    if (wish && std::strcmp(wish, "no") == 0) (*program)->log += "told to refuse\n";
    check(source);
    for (int i = 0; i < headers; ++i) check(texts[i]);
    return 0;
}
API nvrtcResult nvrtcCompileProgram(Program* program, int, const char* const*) { return program->log.empty() ? 0 : 6; }
API nvrtcResult nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
    *size = program->log.size() + 1;
    return 0;
}
API nvrtcResult nvrtcGetProgramLog(Program* program, char* log) {
    std::strcpy(log, program->log.c_str());
    return 0;
}
API nvrtcResult nvrtcGetCUBINSize(Program*, std::size_t* size) {
    *size = sizeof MODULE;
    return 0;
}
API nvrtcResult nvrtcGetCUBIN(Program*, char* module) {
    std::memcpy(module, MODULE, sizeof MODULE);
    return 0;
}
API nvrtcResult nvrtcGetPTXSize(Program* program, std::size_t* size) { return nvrtcGetCUBINSize(program, size); }
API nvrtcResult nvrtcGetPTX(Program* program, char* module) { return nvrtcGetCUBIN(program, module); }
API nvrtcResult nvrtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    return 0;
}
