/* Status codes of the runtime and of generated models.
 *
 * Every function that can fail returns an int32_t: 0 is success, anything else one of these.
 * The list is the only place where a code, its name and its meaning stand; the Python side reads
 * the same list (mtool/device/rpc/protocol.py) and a test holds the two together. */
#ifndef MT_STATUS_H
#define MT_STATUS_H

/* clang-format off */
#define MT_STATUS_LIST(X)                                                              \
    X(MT_OK,                 0, "success")                                             \
    X(MT_BAD_FRAME,          1, "a frame is malformed or its checksum is wrong")       \
    X(MT_BAD_MESSAGE,        2, "a message is too short or its fields make no sense")  \
    X(MT_UNKNOWN_MESSAGE,    3, "the message type is unknown to this firmware")        \
    X(MT_BAD_INDEX,          4, "there is no tensor, operator or model with that index") \
    X(MT_BAD_RANGE,          5, "the range lies outside the tensor")                   \
    X(MT_NO_SESSION,         6, "no session is open")                                  \
    X(MT_TOO_LARGE,          7, "the frame is larger than the receive buffer")         \
    X(MT_TIMER_NOT_STARTED,  8, "the timer was stopped before it was started")         \
    X(MT_TIMER_RUNNING,      9, "the timer was started while it was running")          \
    X(MT_TIMER_OVERFLOW,    10, "the timer ran over its range")                        \
    X(MT_NOT_SUPPORTED,     11, "the platform has no such function")                   \
    X(MT_IO,                12, "the platform could not read or write")                \
    X(MT_MODEL,             13, "the model failed")                                    \
    X(MT_STACK_OVERFLOW,    14, "the stack went over its end")                         \
    X(MT_BUSY,              15, "another host has a session open")                     \
    X(MT_UNKNOWN_FUNCTION,  16, "there is no function of that name")                   \
    X(MT_BAD_COUNT,         17, "a function takes another number of arguments")        \
    X(MT_BAD_TYPE,          18, "an argument is of another type")                      \
    X(MT_BAD_SHAPE,         19, "a tensor has another shape")                          \
    X(MT_BAD_GRAPH,         20, "the graph's JSON is malformed, or of another model")  \
    X(MT_BAD_SIZE,          21, "a size is smaller or larger than the model takes")    \
    X(MT_DEVICE,            22, "a device that computes a part of the model failed")   \
    X(MT_BAD_ORDER,         23, "an inference has not begun, or rows of it are missing") \
    X(MT_BAD_MODULE,        24, "a module is malformed, or not whole") \
    X(MT_BAD_SIGNATURE,     25, "a module is not signed by a key that the firmware knows") \
    X(MT_OLD_MODULE,        26, "a module is older than the least that the device takes") \
    X(MT_WRONG_MACHINE,     27, "a module is for another machine, or of a kind that the firmware does not run") \
    X(MT_NO_MEMORY,         28, "there is not enough memory, or it is not aligned") \
    X(MT_MISSING_IMPORT,    29, "a module calls a function that the firmware does not have") \
    X(MT_BAD_DELTA,         30, "a delta is malformed, of other bytes than are there, or too large") \
    X(MT_STOPPED,           31, "the model was stopped at a fault, and the firmware goes on")
/* clang-format on */

enum {
#define MT_STATUS_ENUM(name, code, meaning) name = (code),
    MT_STATUS_LIST(MT_STATUS_ENUM)
#undef MT_STATUS_ENUM
};

#endif
