/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the byte offsets that src/capture/python/offsets.cc lists, for the CPython whose headers it is compiled against:
 *   cc -I$PREFIX/include/python3.11 tools/print_python_offsets.c -o print_python_offsets && ./print_python_offsets
 * One "name value" pair a line; -1 = the release has no such field. Needs the internal headers (python3.x-dev). */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>

#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
typedef _PyInterpreterFrame frame_type;
#elif PY_VERSION_HEX >= 0x03090000
#include <frameobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
typedef PyFrameObject frame_type;
#else
#include <frameobject.h>
#include <internal/pycore_pystate.h>
typedef PyFrameObject frame_type;
#endif

#define SHOW(name, value) printf("%s %ld\n", name, (long)(value))

static void print_runtime(void) {
  SHOW("runtime_bytes", sizeof(_PyRuntimeState));
  SHOW("runtime_interpreters_head", offsetof(_PyRuntimeState, interpreters.head));
  SHOW("runtime_main_thread", offsetof(_PyRuntimeState, main_thread));
#if PY_VERSION_HEX < 0x030C0000
  SHOW("runtime_tstate_current", offsetof(_PyRuntimeState, gilstate.tstate_current));
#else
  SHOW("runtime_tstate_current", -1);
#endif
}

static void print_interpreter(void) {
#if PY_VERSION_HEX >= 0x030B0000
  SHOW("interpreter_next", offsetof(PyInterpreterState, next));
  SHOW("interpreter_threads_head", offsetof(PyInterpreterState, threads.head));
#else
  SHOW("interpreter_next", offsetof(PyInterpreterState, next));
  SHOW("interpreter_threads_head", offsetof(PyInterpreterState, tstate_head));
#endif
#if PY_VERSION_HEX >= 0x030C0000
  SHOW("interpreter_gil", offsetof(PyInterpreterState, ceval.gil));
  SHOW("gil_holder", offsetof(struct _gil_runtime_state, last_holder));
  SHOW("gil_locked", offsetof(struct _gil_runtime_state, locked));
#else
  SHOW("interpreter_gil", -1);
  SHOW("gil_holder", -1);
  SHOW("gil_locked", -1);
#endif
}

static void print_thread(void) {
  SHOW("thread_next", offsetof(PyThreadState, next));
  SHOW("thread_interpreter", offsetof(PyThreadState, interp));
  SHOW("thread_id", offsetof(PyThreadState, thread_id));
#if PY_VERSION_HEX >= 0x030D0000
  SHOW("thread_frame", offsetof(PyThreadState, current_frame));
  SHOW("cframe_frame", -1);
#elif PY_VERSION_HEX >= 0x030B0000
  SHOW("thread_frame", offsetof(PyThreadState, cframe));
  SHOW("cframe_frame", offsetof(_PyCFrame, current_frame));
#else
  SHOW("thread_frame", offsetof(PyThreadState, frame));
  SHOW("cframe_frame", -1);
#endif
#if PY_VERSION_HEX >= 0x030B0000
  SHOW("thread_native_id", offsetof(PyThreadState, native_thread_id));
#else
  SHOW("thread_native_id", -1);
#endif
}

static void print_frame(void) {
#if PY_VERSION_HEX >= 0x030B0000
  SHOW("frame_previous", offsetof(frame_type, previous));
  SHOW("frame_owner", offsetof(frame_type, owner));
#else
  SHOW("frame_previous", offsetof(frame_type, f_back));
  SHOW("frame_owner", -1);
#endif
#if PY_VERSION_HEX >= 0x030D0000
  SHOW("frame_code", offsetof(frame_type, f_executable));
  SHOW("frame_instruction", offsetof(frame_type, instr_ptr));
#elif PY_VERSION_HEX >= 0x030B0000
  SHOW("frame_code", offsetof(frame_type, f_code));
  SHOW("frame_instruction", offsetof(frame_type, prev_instr));
#else
  SHOW("frame_code", offsetof(frame_type, f_code));
  SHOW("frame_instruction", offsetof(frame_type, f_lasti));
#endif
}

static void print_suspension(void) {
#if PY_VERSION_HEX >= 0x030E0000
  SHOW("frame_stack_top", offsetof(frame_type, stackpointer));
#elif PY_VERSION_HEX >= 0x030B0000
  SHOW("frame_stack_top", offsetof(frame_type, stacktop));
#else
  SHOW("frame_stack_top", -1);
#endif
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
  SHOW("frame_is_entry", offsetof(frame_type, is_entry));
#else
  SHOW("frame_is_entry", -1);
#endif
}

static void print_code(void) {
  SHOW("code_first_line", offsetof(PyCodeObject, co_firstlineno));
  SHOW("code_file", offsetof(PyCodeObject, co_filename));
  SHOW("code_name", offsetof(PyCodeObject, co_name));
#if PY_VERSION_HEX >= 0x030B0000
  SHOW("code_qualified_name", offsetof(PyCodeObject, co_qualname));
  SHOW("code_bytes", offsetof(PyCodeObject, co_code_adaptive));
#else
  SHOW("code_qualified_name", -1);
  SHOW("code_bytes", -1);
#endif
#if PY_VERSION_HEX >= 0x030A0000
  SHOW("code_line_table", offsetof(PyCodeObject, co_linetable));
#else
  SHOW("code_line_table", offsetof(PyCodeObject, co_lnotab));
#endif
}

static void print_objects(void) {
  SHOW("object_type", offsetof(PyObject, ob_type));
  SHOW("type_name", offsetof(PyTypeObject, tp_name));
  SHOW("object_size", offsetof(PyVarObject, ob_size));
  SHOW("bytes_data", offsetof(PyBytesObject, ob_sval));
  SHOW("string_length", offsetof(PyASCIIObject, length));
  SHOW("string_state", offsetof(PyASCIIObject, state));
  SHOW("string_ascii_data", sizeof(PyASCIIObject));
  SHOW("string_compact_data", sizeof(PyCompactUnicodeObject));
}

int main(void) {
  printf("version %s\n", PY_VERSION);
  print_runtime();
  print_interpreter();
  print_thread();
  print_frame();
  print_suspension();
  print_code();
  print_objects();
  return 0;
}
