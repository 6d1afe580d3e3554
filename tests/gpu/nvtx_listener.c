/* What a profiler injects into a process to hear of NVTX's ranges: prints when they begin and end.
   The interface is that of NVTX 3's nvtxDetail/nvtxTypes.h. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CALLBACKS = 1, CORE = 1, RANGE_PUSH_EX = 8, RANGE_POP = 11 };

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
} Attributes;

typedef struct {
    size_t size;
    int (*table)(int module, void ****functions, unsigned *count);
} Callbacks;

static int push(const Attributes *attributes) {
    fprintf(stderr, "NVTX begin %08x %s\n", attributes->color, attributes->message);
    return 0;
}

static int pop(void) {
    fprintf(stderr, "NVTX end\n");
    return 0;
}

int InitializeInjectionNvtx2(const void *(*exported)(uint32_t)) {
    const Callbacks *callbacks = exported(CALLBACKS);
    void ***functions;
    unsigned count;
    if (!callbacks || !callbacks->table(CORE, &functions, &count) || count <= RANGE_POP)
        return 0;
    *functions[RANGE_PUSH_EX] = (void *)push;
    *functions[RANGE_POP] = (void *)pop;
    return 1;
}
