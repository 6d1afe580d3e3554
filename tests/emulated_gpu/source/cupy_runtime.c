/* The CUDA runtime as CuPy calls it, upon the emulated driver.
 *
 * CuPy's Cython modules reach the runtime through the functions that
 * `cupy_backends.cuda.api.runtime` exports to them (`__pyx_capi__`): name, C signature, address. Here is
 * one function for each, with the signature that CuPy gives it; runtime.py exchanges the addresses
 * before any other module has read them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "emulator.h"

static PyObject *error_class;  /* CuPy's CUDARuntimeError */
static PyObject *in_python;    /* {name: function} of what runtime.py does */

static int report(int error) {
  if (!error) return 0;
  PyObject *value = PyObject_CallFunction(error_class, "i", error);
  if (value) PyErr_SetObject(error_class, value);
  Py_XDECREF(value);
  return error;
}
#define CALL(expression) ({ int error_; Py_BEGIN_ALLOW_THREADS error_ = (int)(expression); Py_END_ALLOW_THREADS report(error_); })
#define NONE_AFTER(expression) do { if (CALL(expression)) return NULL; Py_RETURN_NONE; } while (0)
#define POINTER(address) ((void *)(address))
#define STREAM(handle) ((CUstream)(handle))

/* The runtime's threads use device 0 until they choose another, and open its context themselves. */
static int bind(int number) {
  CUcontext context;
  int error = cuInit(0);
  if (!error) error = cuDevicePrimaryCtxRetain(&context, number);
  return error ? error : cuCtxSetCurrent(context);
}
static int bound(void) { return current_device() ? failure : bind(0); }
#define AFTER_BINDING(expression) ({ int error__ = bound(); error__ ? error__ : (int)(expression); })

typedef int skip; /* Cython's __pyx_skip_dispatch */
typedef struct { int count; unsigned flags; } optional_flags;
#define FLAGS(given) ((given) && (given)->count > 0 ? (given)->flags : 0)

/* ---- Devices --------------------------------------------------------------------------------- */
static int version(skip s) { return DRIVER_VERSION; }
static int major_version(skip s) { return DRIVER_VERSION / 1000; }
static int getDevice(skip s) {
  CUdevice number = 0;
  if (CALL(cuInit(0))) return -1;
  if (current_device()) cuCtxGetDevice(&number);
  return number;
}
static int getDeviceCount(skip s) {
  int count;
  return CALL(({ int e = cuInit(0); e ? e : (int)cuDeviceGetCount(&count); })) ? -1 : count;
}
static PyObject *setDevice(int number, skip s) { NONE_AFTER(bind(number)); }
static int deviceGetAttribute(int attribute, int number, skip s) {
  int value;
  return CALL(({ int e = cuInit(0); e ? e : (int)cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, number); })) ? -1 : value;
}
static int deviceGetByPCIBusId(PyObject *name, skip s) {
  CUdevice number;
  const char *text = PyUnicode_AsUTF8(name);
  if (!text || CALL(({ int e = cuInit(0); e ? e : (int)cuDeviceGetByPCIBusId(&number, text); }))) return -1;
  return number;
}
static PyObject *deviceGetPCIBusId(int number, skip s) {
  char text[16];
  return CALL(({ int e = cuInit(0); e ? e : (int)cuDeviceGetPCIBusId(text, sizeof text, number); })) ? NULL : PyUnicode_FromString(text);
}
static PyObject *deviceSynchronize(skip s) { NONE_AFTER(AFTER_BINDING(cuCtxSynchronize())); }
static int deviceCanAccessPeer(int number, int peer, skip s) { return 0; }
static PyObject *ensurePeerAccess(int peer, skip s) { Py_RETURN_NONE; }
static size_t deviceGetLimit(int limit, skip s) { return (size_t)8 << 20; }
static PyObject *deviceSetLimit(int limit, size_t value, skip s) { Py_RETURN_NONE; }
static PyObject *ensure_context(void) { NONE_AFTER(bound()); }
static PyObject *profiler(skip s) { Py_RETURN_NONE; }

static PyObject *python(const char *name) { return PyDict_GetItemString(in_python, name); }
static PyObject *getDeviceProperties(int number, skip s) { return PyObject_CallFunction(python("getDeviceProperties"), "i", number); }

/* ---- Memory ---------------------------------------------------------------------------------- */
static intptr_t allocate(size_t bytes, skip s) {
  CUdeviceptr address = 0;
  return bytes && CALL(AFTER_BINDING(cuMemAlloc_v2(&address, bytes))) ? 0 : (intptr_t)address;
}
static intptr_t mallocManaged(size_t bytes, skip s, optional_flags *flags) { return allocate(bytes, s); }
static intptr_t mallocAsync(size_t bytes, intptr_t stream, skip s) {
  CUdeviceptr address = 0;
  return CALL(AFTER_BINDING(cuMemAllocAsync(&address, bytes, STREAM(stream)))) ? 0 : (intptr_t)address;
}
static intptr_t mallocFromPoolAsync(size_t bytes, intptr_t pool, intptr_t stream, skip s) { return mallocAsync(bytes, stream, s); }
static intptr_t hostAlloc(size_t bytes, unsigned flags, skip s) {
  void *address = 0;
  return CALL(AFTER_BINDING(cuMemHostAlloc(&address, bytes, flags))) ? 0 : (intptr_t)address;
}
static PyObject *hostRegister(intptr_t address, size_t bytes, unsigned flags, skip s) { NONE_AFTER(AFTER_BINDING(cuMemHostRegister_v2(POINTER(address), bytes, flags))); }
static PyObject *hostUnregister(intptr_t address, skip s) { NONE_AFTER(cuMemHostUnregister(POINTER(address))); }
static PyObject *freeMemory(intptr_t address, skip s) { NONE_AFTER(AFTER_BINDING(cuMemFree_v2((CUdeviceptr)address))); }
static PyObject *freeHost(intptr_t address, skip s) { NONE_AFTER(cuMemFreeHost(POINTER(address))); }
static PyObject *freeAsync(intptr_t address, intptr_t stream, skip s) { NONE_AFTER(AFTER_BINDING(cuMemFreeAsync((CUdeviceptr)address, STREAM(stream)))); }
static PyObject *memGetInfo(skip s) {
  size_t available, total;
  return CALL(AFTER_BINDING(cuMemGetInfo_v2(&available, &total))) ? NULL : Py_BuildValue("(nn)", (Py_ssize_t)available, (Py_ssize_t)total);
}
static PyObject *pointerGetAttributes(intptr_t address, skip s) { return PyObject_CallFunction(python("pointerGetAttributes"), "n", (Py_ssize_t)address); }
static int pointerGetMemoryType(intptr_t address, skip s) { return block_at(POINTER(address)) ? 2 : is_page_locked(POINTER(address)); }

static intptr_t deviceGetMemPool(int number, skip s) {
  CUmemoryPool pool;
  return CALL(({ int e = cuInit(0); e ? e : (int)cuDeviceGetMemPool(&pool, number); })) ? 0 : (intptr_t)pool;
}
static PyObject *deviceSetMemPool(int number, intptr_t pool, skip s) { Py_RETURN_NONE; }
static PyObject *memPoolTrimTo(intptr_t pool, size_t keep, skip s) { Py_RETURN_NONE; }
static PyObject *memPoolGetAttribute(intptr_t pool, int attribute, skip s) {
  uint64_t value = 0;
  if (CALL(cuMemPoolGetAttribute((CUmemoryPool)pool, (CUmemPool_attribute)attribute, &value))) return NULL;
  return PyLong_FromUnsignedLongLong(value);
}
static PyObject *memPoolSetAttribute(intptr_t pool, int attribute, PyObject *given, skip s) {
  uint64_t value = PyLong_AsUnsignedLongLong(given);
  if (PyErr_Occurred()) return NULL;
  NONE_AFTER(cuMemPoolSetAttribute((CUmemoryPool)pool, (CUmemPool_attribute)attribute, &value));
}

/* ---- Copies ---------------------------------------------------------------------------------- */
static PyObject *copy_now(intptr_t to, intptr_t from, size_t bytes, int kind, skip s) { NONE_AFTER(AFTER_BINDING(copy(POINTER(to), POINTER(from), bytes, 0, 1))); }
static PyObject *copy_later(intptr_t to, intptr_t from, size_t bytes, int kind, intptr_t stream, skip s) { NONE_AFTER(AFTER_BINDING(copy(POINTER(to), POINTER(from), bytes, STREAM(stream), 0))); }
static PyObject *copy_peer(intptr_t to, int there, intptr_t from, int here, size_t bytes, skip s) { NONE_AFTER(AFTER_BINDING(copy(POINTER(to), POINTER(from), bytes, 0, 1))); }
static PyObject *copy_peer_later(intptr_t to, int there, intptr_t from, int here, size_t bytes, intptr_t stream, skip s) { NONE_AFTER(AFTER_BINDING(copy(POINTER(to), POINTER(from), bytes, STREAM(stream), 0))); }
static PyObject *copy_2d(intptr_t to, size_t pitch_to, intptr_t from, size_t pitch_from, size_t bytes, size_t rows, int kind, skip s) {
  NONE_AFTER(AFTER_BINDING(copy_rows(POINTER(to), pitch_to, POINTER(from), pitch_from, bytes, rows, 0, 1)));
}
static PyObject *copy_2d_later(intptr_t to, size_t pitch_to, intptr_t from, size_t pitch_from, size_t bytes, size_t rows, int kind, intptr_t stream, skip s) {
  NONE_AFTER(AFTER_BINDING(copy_rows(POINTER(to), pitch_to, POINTER(from), pitch_from, bytes, rows, STREAM(stream), 0)));
}
static PyObject *fill_now(intptr_t to, int value, size_t bytes, skip s) { NONE_AFTER(AFTER_BINDING(cuMemsetD8_v2((CUdeviceptr)to, (unsigned char)value, bytes))); }
static PyObject *fill_later(intptr_t to, int value, size_t bytes, intptr_t stream, skip s) { NONE_AFTER(AFTER_BINDING(cuMemsetD8Async((CUdeviceptr)to, (unsigned char)value, bytes, STREAM(stream)))); }

/* ---- Streams and events ---------------------------------------------------------------------- */
static intptr_t streamCreateWithPriority(unsigned flags, int priority, skip s) {
  CUstream stream = 0;
  return CALL(AFTER_BINDING(cuStreamCreateWithPriority(&stream, flags, priority))) ? 0 : (intptr_t)stream;
}
static intptr_t streamCreateWithFlags(unsigned flags, skip s) { return streamCreateWithPriority(flags, 0, s); }
static intptr_t streamCreate(skip s) { return streamCreateWithPriority(0, 0, s); }
static unsigned streamGetFlags(intptr_t stream, skip s) {
  unsigned flags = 0;
  CALL(AFTER_BINDING(cuStreamGetFlags(STREAM(stream), &flags)));
  return flags;
}
static int streamGetPriority(intptr_t stream, skip s) {
  int priority = 0;
  CALL(AFTER_BINDING(cuStreamGetPriority(STREAM(stream), &priority)));
  return priority;
}
static PyObject *streamDestroy(intptr_t stream, skip s) { NONE_AFTER(AFTER_BINDING(cuStreamDestroy_v2(STREAM(stream)))); }
static PyObject *streamSynchronize(intptr_t stream, skip s) { NONE_AFTER(AFTER_BINDING(cuStreamSynchronize(STREAM(stream)))); }
static PyObject *streamQuery(intptr_t stream, skip s) { return PyLong_FromLong(AFTER_BINDING(cuStreamQuery(STREAM(stream)))); }
static PyObject *streamWaitEvent(intptr_t stream, intptr_t event, skip s, optional_flags *flags) { NONE_AFTER(AFTER_BINDING(cuStreamWaitEvent(STREAM(stream), (CUevent)event, FLAGS(flags)))); }
static int streamIsCapturing(intptr_t stream, skip s) { return 0; }

typedef struct { PyObject *function; intptr_t stream, argument; int with_status; } host_call;
static void call_host(void *given) {
  host_call *c = given;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *result = c->with_status ? PyObject_CallFunction(c->function, "nin", (Py_ssize_t)c->stream, failure, (Py_ssize_t)c->argument)
                                    : PyObject_CallFunction(c->function, "n", (Py_ssize_t)c->argument);
  if (!result) PyErr_WriteUnraisable(c->function);
  Py_XDECREF(result);
  Py_DECREF(c->function);
  PyGILState_Release(state);
  free(c);
}
static PyObject *call_later(intptr_t stream, PyObject *function, intptr_t argument, int with_status) {
  host_call *c = malloc(sizeof *c);
  Py_INCREF(function);
  *c = (host_call){function, stream, argument, with_status};
  NONE_AFTER(AFTER_BINDING(cuLaunchHostFunc(STREAM(stream), call_host, c)));
}
static PyObject *host_func(intptr_t stream, PyObject *function, intptr_t argument, skip s) { return call_later(stream, function, argument, 0); }
static PyObject *add_callback(intptr_t stream, PyObject *function, intptr_t argument, skip s, optional_flags *flags) { return call_later(stream, function, argument, 1); }

static intptr_t eventCreateWithFlags(unsigned flags, skip s) {
  CUevent event = 0;
  return CALL(AFTER_BINDING(cuEventCreate(&event, flags))) ? 0 : (intptr_t)event;
}
static intptr_t eventCreate(skip s) { return eventCreateWithFlags(0, s); }
static PyObject *eventDestroy(intptr_t event, skip s) { NONE_AFTER(cuEventDestroy_v2((CUevent)event)); }
static PyObject *eventQuery(intptr_t event, skip s) { return PyLong_FromLong(cuEventQuery((CUevent)event)); }
static PyObject *eventRecord(intptr_t event, intptr_t stream, skip s) { NONE_AFTER(AFTER_BINDING(cuEventRecord((CUevent)event, STREAM(stream)))); }
static PyObject *eventSynchronize(intptr_t event, skip s) { NONE_AFTER(cuEventSynchronize((CUevent)event)); }
static float eventElapsedTime(intptr_t start, intptr_t end, skip s) {
  float milliseconds = 0;
  CALL(cuEventElapsedTime(&milliseconds, (CUevent)start, (CUevent)end));
  return milliseconds;
}

/* ---- The table ------------------------------------------------------------------------------- */
#define OPT(name) "struct __pyx_opt_args_13cupy_backends_4cuda_3api_7runtime_" name " *__pyx_optional_args"
#define SKIP "int __pyx_skip_dispatch"
typedef struct { const char *name, *signature; void *address; } export_t;
EXPORT const export_t emulator_exports[] = {
  {"driverGetVersion", "int (" SKIP ")", version},
  {"runtimeGetVersion", "int (" SKIP ")", version},
  {"_getCUDAMajorVersion", "int (" SKIP ")", major_version},
  {"getDevice", "int (" SKIP ")", getDevice},
  {"getDeviceCount", "int (" SKIP ")", getDeviceCount},
  {"setDevice", "PyObject *(int, " SKIP ")", setDevice},
  {"deviceGetAttribute", "int (int, int, " SKIP ")", deviceGetAttribute},
  {"getDeviceProperties", "PyObject *(int, " SKIP ")", getDeviceProperties},
  {"deviceGetByPCIBusId", "int (PyObject *, " SKIP ")", deviceGetByPCIBusId},
  {"deviceGetPCIBusId", "PyObject *(int, " SKIP ")", deviceGetPCIBusId},
  {"deviceSynchronize", "PyObject *(" SKIP ")", deviceSynchronize},
  {"deviceCanAccessPeer", "int (int, int, " SKIP ")", deviceCanAccessPeer},
  {"deviceEnablePeerAccess", "PyObject *(int, " SKIP ")", ensurePeerAccess},
  {"_deviceEnsurePeerAccess", "PyObject *(int, " SKIP ")", ensurePeerAccess},
  {"deviceGetLimit", "size_t (int, " SKIP ")", deviceGetLimit},
  {"deviceSetLimit", "PyObject *(int, size_t, " SKIP ")", deviceSetLimit},
  {"_ensure_context", "PyObject *(void)", ensure_context},
  {"profilerStart", "PyObject *(" SKIP ")", profiler},
  {"profilerStop", "PyObject *(" SKIP ")", profiler},
  {"malloc", "intptr_t (size_t, " SKIP ")", allocate},
  {"mallocManaged", "intptr_t (size_t, " SKIP ", " OPT("mallocManaged") ")", mallocManaged},
  {"mallocAsync", "intptr_t (size_t, intptr_t, " SKIP ")", mallocAsync},
  {"mallocFromPoolAsync", "intptr_t (size_t, intptr_t, intptr_t, " SKIP ")", mallocFromPoolAsync},
  {"hostAlloc", "intptr_t (size_t, unsigned int, " SKIP ")", hostAlloc},
  {"hostRegister", "PyObject *(intptr_t, size_t, unsigned int, " SKIP ")", hostRegister},
  {"hostUnregister", "PyObject *(intptr_t, " SKIP ")", hostUnregister},
  {"free", "PyObject *(intptr_t, " SKIP ")", freeMemory},
  {"freeHost", "PyObject *(intptr_t, " SKIP ")", freeHost},
  {"freeAsync", "PyObject *(intptr_t, intptr_t, " SKIP ")", freeAsync},
  {"memGetInfo", "PyObject *(" SKIP ")", memGetInfo},
  {"pointerGetAttributes", "struct __pyx_obj_13cupy_backends_4cuda_3api_7runtime_PointerAttributes *(intptr_t, " SKIP ")", pointerGetAttributes},
  {"pointerGetMemoryType", "int (intptr_t, " SKIP ")", pointerGetMemoryType},
  {"deviceGetDefaultMemPool", "intptr_t (int, " SKIP ")", deviceGetMemPool},
  {"deviceGetMemPool", "intptr_t (int, " SKIP ")", deviceGetMemPool},
  {"deviceSetMemPool", "PyObject *(int, intptr_t, " SKIP ")", deviceSetMemPool},
  {"memPoolTrimTo", "PyObject *(intptr_t, size_t, " SKIP ")", memPoolTrimTo},
  {"memPoolGetAttribute", "PyObject *(intptr_t, int, " SKIP ")", memPoolGetAttribute},
  {"memPoolSetAttribute", "PyObject *(intptr_t, int, PyObject *, " SKIP ")", memPoolSetAttribute},
  {"memcpy", "PyObject *(intptr_t, intptr_t, size_t, int, " SKIP ")", copy_now},
  {"memcpyAsync", "PyObject *(intptr_t, intptr_t, size_t, int, intptr_t, " SKIP ")", copy_later},
  {"memcpyPeer", "PyObject *(intptr_t, int, intptr_t, int, size_t, " SKIP ")", copy_peer},
  {"memcpyPeerAsync", "PyObject *(intptr_t, int, intptr_t, int, size_t, intptr_t, " SKIP ")", copy_peer_later},
  {"memcpy2D", "PyObject *(intptr_t, size_t, intptr_t, size_t, size_t, size_t, cudaMemcpyKind, " SKIP ")", copy_2d},
  {"memcpy2DAsync", "PyObject *(intptr_t, size_t, intptr_t, size_t, size_t, size_t, cudaMemcpyKind, intptr_t, " SKIP ")", copy_2d_later},
  {"memset", "PyObject *(intptr_t, int, size_t, " SKIP ")", fill_now},
  {"memsetAsync", "PyObject *(intptr_t, int, size_t, intptr_t, " SKIP ")", fill_later},
  {"streamCreate", "intptr_t (" SKIP ")", streamCreate},
  {"streamCreateWithFlags", "intptr_t (unsigned int, " SKIP ")", streamCreateWithFlags},
  {"streamCreateWithPriority", "intptr_t (unsigned int, int, " SKIP ")", streamCreateWithPriority},
  {"streamGetFlags", "unsigned int (intptr_t, " SKIP ")", streamGetFlags},
  {"streamGetPriority", "int (intptr_t, " SKIP ")", streamGetPriority},
  {"streamDestroy", "PyObject *(intptr_t, " SKIP ")", streamDestroy},
  {"streamSynchronize", "PyObject *(intptr_t, " SKIP ")", streamSynchronize},
  {"streamQuery", "PyObject *(intptr_t, " SKIP ")", streamQuery},
  {"streamWaitEvent", "PyObject *(intptr_t, intptr_t, " SKIP ", " OPT("streamWaitEvent") ")", streamWaitEvent},
  {"streamIsCapturing", "int (intptr_t, " SKIP ")", streamIsCapturing},
  {"streamAddCallback", "PyObject *(intptr_t, PyObject *, intptr_t, " SKIP ", " OPT("streamAddCallback") ")", add_callback},
  {"launchHostFunc", "PyObject *(intptr_t, PyObject *, intptr_t, " SKIP ")", host_func},
  {"eventCreate", "intptr_t (" SKIP ")", eventCreate},
  {"eventCreateWithFlags", "intptr_t (unsigned int, " SKIP ")", eventCreateWithFlags},
  {"eventDestroy", "PyObject *(intptr_t, " SKIP ")", eventDestroy},
  {"eventQuery", "PyObject *(intptr_t, " SKIP ")", eventQuery},
  {"eventRecord", "PyObject *(intptr_t, intptr_t, " SKIP ")", eventRecord},
  {"eventSynchronize", "PyObject *(intptr_t, " SKIP ")", eventSynchronize},
  {"eventElapsedTime", "float (intptr_t, intptr_t, " SKIP ")", eventElapsedTime},
  {0}};

/* What CuPy exports and is not in the table above: each raises an error that says so. They return
 * what Cython takes for "look whether there is an error" in all of these, which are objects,
 * addresses and handles: 0. */
#define NOT_THERE(name) static void *no_##name(void) { \
  PyErr_SetString(PyExc_NotImplementedError, "the emulated GPU lacks cupy.cuda.runtime." #name ": it goes into tests/emulated_gpu/source/cupy_runtime.c"); \
  return 0; }
#define MISSING(do) do(freeArray) do(mallocArray) do(malloc3DArray) do(memcpy3D) do(memcpy3DAsync) do(memcpy2DFromArray) \
  do(memcpy2DFromArrayAsync) do(memcpy2DToArray) do(memcpy2DToArrayAsync) do(memAdvise) do(memPrefetchAsync) \
  do(memPoolCreate) do(memPoolDestroy) do(streamBeginCapture) do(streamEndCapture) do(graphDestroy) do(graphExecDestroy) \
  do(graphInstantiate) do(graphLaunch) do(graphUpload) do(graphDebugDotPrint) do(createTextureObject) \
  do(destroyTextureObject) do(createSurfaceObject) do(destroySurfaceObject) do(_launchHostFuncUnmanaged)
MISSING(NOT_THERE)
#define ROW(name) {#name, 0, no_##name},
EXPORT const export_t emulator_missing[] = {MISSING(ROW){0}};

EXPORT void emulator_bind_python(PyObject *error, PyObject *functions) {
  Py_INCREF(error);
  Py_INCREF(functions);
  error_class = error;
  in_python = functions;
}
